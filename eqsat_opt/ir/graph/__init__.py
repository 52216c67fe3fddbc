"""The typed graph, its constants, and kernels cut out of it."""

__all__: list[str] = []
