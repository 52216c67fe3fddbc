"""Kernels and prices of candidates as text."""

from __future__ import annotations

from collections.abc import Callable

from eqsat_opt.cost.metrics import LAUNCH_US
from eqsat_opt.cost.quotes import Quote
from eqsat_opt.ir.graph.values_json import attrs_text
from eqsat_opt.select.choosing.pricing import is_unpriced
from eqsat_opt.select.tiling.candidates import CONSTANT, JOINT, Candidate

__all__ = ["FREE", "body_text", "price_texts"]

FREE = ("leaf", *CONSTANT)
"""Kinds of candidates whose values exist before anything runs."""


def body_text(item: Candidate, operand: Callable[[int], str], own: str) -> str:
    """Return the steps of a candidate in one line: ``Conv(x, w; group=1) > Relu(·)``.

    ``·`` is the previous step, and ``%k`` the k-th step, where another one is read.

    Args:
        item: the candidate.
        operand: function that names a class.
        own: the value of a leaf or constant, the operator of an opaque node.
    """
    reads = ", ".join(map(operand, item.reads))
    match item.kind:
        case "leaf" | "const" | "made":
            return own
        case "opaque":
            return f"{own}({reads})"
        case "out":
            return f"output of {reads}"
        case "part":
            return f"part {item.index} of {reads}"
    first, steps = len(item.operands), []
    for number, step in enumerate(item.steps, start=first):
        names = []
        for ref in step.operands:
            if ref < first:
                names.append(operand(item.operands[ref].cls))
            else:
                names.append("·" if ref == number - 1 else f"%{ref - first + 1}")
        attrs = attrs_text(step.attrs)
        inside = "; ".join(filter(None, (", ".join(names), attrs)))
        steps.append(f"{step.op}({inside})")
    return (" | " if item.kind in JOINT else " > ").join(steps)


def price_texts(item: Candidate, price: Quote | None) -> tuple[str, str]:
    """Return a price in µs and its source; two empty texts for a candidate that runs nothing."""
    if price is not None:
        return f"{price.time_us:.3f}", price.source
    return (f"{LAUNCH_US:.3f}", "launch only") if is_unpriced(item) else ("", "")
