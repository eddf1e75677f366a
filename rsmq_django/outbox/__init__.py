"""Optional application: enqueueing in the caller's transaction, and running a task once, with the help of its database.

The outbox is a table. `enqueue()` writes a row in the transaction that causes the work, so that both are stored or
neither; a relay sends the rows. The inbox is another table, which tells a repeated task that its work is done.
"""
