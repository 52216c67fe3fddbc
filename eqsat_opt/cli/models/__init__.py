"""Commands that look at models without optimising them."""

from __future__ import annotations

__all__: list[str] = []
