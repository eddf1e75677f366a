"""What templates of the admin load."""
