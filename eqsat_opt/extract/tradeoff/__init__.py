"""Two metrics at once: products and quotients, and the plane that their fronts lie in."""

from __future__ import annotations

__all__: list[str] = []
