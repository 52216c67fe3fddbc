"""The smallest part of a model on which a command still fails, for reports of bugs."""

from __future__ import annotations

__all__: list[str] = []
