"""Options and commands for runs that no person watches: thresholds, decisions, a JSON Schema."""

__all__: list[str] = []
