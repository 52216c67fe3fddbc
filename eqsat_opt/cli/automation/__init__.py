"""Options and commands for runs that no person watches: thresholds, and the schema of the JSON."""

__all__: list[str] = []
