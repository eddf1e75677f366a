"""Redis behind Django's QuerySet: the rows that standard admin pages read when their models are not in a database.

Nothing here writes to Redis, and nothing here is shown: the models are in `models/`, the pages in `admin/`.
"""
