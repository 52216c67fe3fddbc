"""Two metrics at once: products, quotients, limits by their price, and the whole front."""

from __future__ import annotations

__all__: list[str] = []
