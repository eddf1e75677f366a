"""Optional application: enqueue in the caller's transaction, and run tasks with exactly-once effect in the database.

The tables of rows to send and of finished tasks, and the relay that sends rows. Tasks without a transaction do not pass
through here: `tasks/sending.py` sends those.
"""
