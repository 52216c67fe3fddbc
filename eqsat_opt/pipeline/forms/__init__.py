"""Forms of a result beside the portable one: for this machine, and for a device."""

__all__: list[str] = []
