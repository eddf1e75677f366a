"""Migrations of the models in `models/`: content types and permissions come from here.

None of them creates a table: the rows of these models are in Redis.
"""
