"""A small project with an outbox, for processes that tests start."""
