"""Views of models without a search: what is in one, where two differ, what each operator takes."""

from __future__ import annotations

__all__: list[str] = []
