"""Forms of a result besides the portable one: for this machine, and for a device."""

__all__: list[str] = []
