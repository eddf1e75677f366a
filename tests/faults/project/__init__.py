"""The project whose senders and workers meet the faults."""
