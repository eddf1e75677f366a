"""Optional application: enqueue in the caller's transaction, and run tasks with exactly-once effect in the database.

The outbox is a table. `enqueue()` inserts a row in the caller's transaction, so that the row is stored if and only if
the transaction commits; a relay sends the rows. The inbox is another table, which records finished tasks.
"""
