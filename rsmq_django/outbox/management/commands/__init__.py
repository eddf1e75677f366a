"""`manage.py rsmq_outbox`: shows the outbox, relays it, sends rows again, deletes old rows.

It reads options and prints; the relay and the deletion are in `relay.py` and `relay_process.py` of the outbox.
"""
