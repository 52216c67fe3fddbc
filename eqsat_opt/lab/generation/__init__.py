"""Generation of rules: terms are enumerated and evaluated, and equal ones become proven rules."""

__all__: list[str] = []
