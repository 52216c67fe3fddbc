"""What several backends have in common."""

__all__: list[str] = []
