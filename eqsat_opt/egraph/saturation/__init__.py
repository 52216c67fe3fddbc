"""Rules applied to a model, phase by phase and within a budget, here or in a child process."""

__all__: list[str] = []
