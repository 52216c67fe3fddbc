"""Plans: which kernels run, in which memory, in which order. Data only; nothing here runs one."""

__all__: list[str] = []
