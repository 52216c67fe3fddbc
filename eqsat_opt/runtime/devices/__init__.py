"""Devices that execute launches, and profiles of devices that need not be present."""

__all__ = ["HOST"]

HOST = "cpu"
"""The name of this machine's processor, as a target and as a device."""
