"""A small project for worker processes that tests start: its settings, and tasks that write down what they do."""
