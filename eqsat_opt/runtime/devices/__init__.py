"""Devices: what executes launches, and the facts of machines that nobody has at hand."""

__all__: list[str] = []
