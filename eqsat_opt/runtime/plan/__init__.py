"""Plans: which kernels run, in which memory, in which order. Plans are data; nothing here runs."""

__all__: list[str] = []
