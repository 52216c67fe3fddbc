"""Shrinking a problem without losing every optimum: the rules, and what they share."""

from __future__ import annotations

__all__: list[str] = []
