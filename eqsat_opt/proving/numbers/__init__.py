"""The number domains that rules are evaluated on: exact numbers, integers and floating point."""

__all__: list[str] = []
