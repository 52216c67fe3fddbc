"""Options and commands for runs that no person watches: thresholds, decisions, schemas."""

__all__: list[str] = []
