"""A run as one page of HTML that needs nothing else: verdict, times, graphs, kernels and rules."""

from __future__ import annotations

__all__: list[str] = []
