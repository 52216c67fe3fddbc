"""Devices that execute launches, and profiles of devices that need not be present."""

__all__: list[str] = []
