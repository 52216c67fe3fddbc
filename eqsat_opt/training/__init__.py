"""Training graphs: from an inference model and a loss to gradients and updated parameters."""

__all__: list[str] = []
