"""The order in which a selection is computed."""

from __future__ import annotations

from eqsat_opt.select.tiling.candidates import Selection

__all__ = ["execution_order"]


def execution_order(selection: Selection) -> list[int]:
    """Return chosen classes, operands first; a selection in this order keeps it."""
    done: set[int] = set()
    result: list[int] = []
    for root in selection:
        stack = [(root, False)]
        while stack:
            cls, ready = stack.pop()
            if ready:
                result.append(cls)
            elif cls not in done:
                done.add(cls)
                stack.append((cls, True))
                reads = selection[cls].candidate.reads
                stack += [(c, False) for c in reversed(reads) if c not in done]
    return result
