"""Results of the Spark pipeline in the project's database: a history of weeks, while Redis keeps hours.

`publish` writes it from the files of the lake, `history` reads it for admin pages. Nothing here needs Spark or Java:
the computations are in `spark/`.
"""
