"""Checkers of what others claim to have shown, which share no code with them."""
