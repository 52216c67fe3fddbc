"""What rules are evaluated on: exact numbers, integers, real ones, and what may happen to them."""

__all__: list[str] = []
