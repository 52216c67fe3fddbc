"""Checkers of what others claim to have shown, which share no code with them."""

__all__: list[str] = []
