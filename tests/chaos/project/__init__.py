"""A small project whose tasks do to their process whatever a task can do."""
