"""A small project whose tasks end, kill or block their process."""
