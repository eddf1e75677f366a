"""What the Spark pipeline found out, in the project's database: history for weeks where Redis keeps hours.

`publish` writes it from the files of the lake, `history` reads it for pages. Neither needs Spark or Java.
"""
