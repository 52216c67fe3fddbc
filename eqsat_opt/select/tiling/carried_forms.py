"""Forms of a backend's own in which values are when a kernel reads them.

These forms are not chosen here: inside a session onnxruntime converts values to its blocked layout
and back by its own decision. They only make the price of a kernel between such values correct, and
are not part of the extraction problem; forms that implementations name are (`forms`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from eqsat_opt.egraph import EClasses
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.backends.protocol import CarriedForm
from eqsat_opt.select.tiling.candidates import Candidate

__all__ = ["amid", "classes_in"]


def classes_in(eclasses: EClasses, carried: CarriedForm) -> frozenset[int]:
    """Return the classes whose values are in a form: those of its makers and its keepers."""
    found: set[int] = set()
    pending = [
        node
        for node, op in enumerate(eclasses.op)
        if (op in carried.makers or op in carried.keepers)
        and not eclasses.is_const[eclasses.class_of[node]]
    ]
    count = -1
    while count != len(found):
        count = len(found)
        for node in pending:
            cls = int(eclasses.class_of[node])
            type_ = eclasses.types[cls]
            if cls in found or not isinstance(type_, TensorType) or not carried.holds(type_):
                continue
            operands = (c for c in eclasses.children(node) if not eclasses.is_const[c])
            if eclasses.op[node] in carried.makers or all(c in found for c in operands):
                found.add(cls)
    return frozenset(found)


def amid(candidate: Candidate, forms: Iterable[tuple[CarriedForm, frozenset[int]]]) -> Candidate:
    """Return the candidate with the form named, where it passes on a form that it does not know.

    Args:
        candidate: a kernel.
        forms: each form with the classes in it.
    """
    ops = {step.op for step in candidate.steps}
    for carried, classes in forms:
        if ops and ops <= carried.passers and candidate.operands[0].cls in classes:
            first, *others = candidate.operands
            operands = (replace(first, form=carried.form), *others)
            return replace(candidate, operands=operands, writes=carried.form)
    return candidate
