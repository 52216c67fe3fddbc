"""Candidates: every kernel that could compute an e-class.

A candidate covers some e-nodes, reads some classes and is one kernel, which backends may implement
in several ways. Extraction then chooses one candidate and one implementation per needed class; that
is substitution, fusion, multi-output selection, backend and algorithm in one decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from eqsat_opt.egraph import EClasses
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.values.forms import PLAIN, Form
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.backends.protocol import DEFAULT, Implementation
from eqsat_opt.select.tiling.classes import NodeClasses

__all__ = [
    "CONSTANT",
    "JOINT",
    "OUTPUTS",
    "SLICES",
    "Candidate",
    "Candidates",
    "OperandRef",
    "Selected",
    "Selection",
    "kernel_of",
]

SLICES, OUTPUTS = "split", "outputs"
"""Kinds of kernels with several results: neighbouring Slices, outputs of one application."""
JOINT = frozenset({SLICES, OUTPUTS})

CONSTANT = frozenset({"const", "made"})
"""Kinds of candidates whose values are known when a session is made."""

_VALUE_MATTERS = frozenset({"Pow"})


@dataclass(frozen=True, slots=True)
class OperandRef:
    """A class that a kernel reads; a constant may be read in another shape.

    Attributes:
        cls: the class.
        shape: the other shape.
        form: form in which the value arrives.
    """

    cls: int
    shape: tuple[int, ...] | None = None
    form: Form = PLAIN


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to compute a class.

    Attributes:
        cls: the class, or a pseudo-class beyond the e-graph's for a multi-output kernel.
        kind: ``leaf``, ``const`` for a constant that is stored, ``made`` for one that a runtime
            computes from others beforehand, ``opaque``, ``out``, ``part``, ``op``, one of
            :data:`JOINT` or the name of a kernel pattern.
        nodes: covered e-nodes, operands first.
        reads: classes that must be computed.
        operands, steps: the kernel's body; empty for a candidate that runs nothing.
        outputs: step numbers of the kernel's outputs: one, except for the kinds of :data:`JOINT`.
        index: output number of a ``part``.
        writes: the required form of the outputs.
        fused_by: the backends whose patterns found it, if it is no kernel for all of them.
    """

    cls: int
    kind: str
    nodes: tuple[int, ...]
    reads: tuple[int, ...]
    operands: tuple[OperandRef, ...] = ()
    steps: tuple[Step, ...] = ()
    outputs: tuple[int, ...] = ()
    index: int = 0
    writes: Form = PLAIN
    fused_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Selected:
    """The candidate and implementation that compute a class.

    Attributes:
        candidate: the kernel.
        backend: name of the backend that runs it; empty for a candidate that runs nothing priced.
        implementation: the backend's implementation.
    """

    candidate: Candidate
    backend: str = ""
    implementation: Implementation = DEFAULT


Selection = Mapping[int, Selected]
"""The selected candidate of every class that is computed."""


@dataclass(frozen=True)
class Candidates:
    """All candidates of an e-graph.

    Attributes:
        eclasses: the e-graph that they were found in.
        items: the candidates, sorted by class.
        n_classes: number of classes of the e-graph and pseudo-classes.
    """

    eclasses: EClasses
    items: tuple[Candidate, ...]
    n_classes: int

    @cached_property
    def kernels(self) -> tuple[Kernel | None, ...]:
        """The kernel of each candidate, ``None`` for a candidate that runs nothing priced."""
        return tuple(kernel_of(self.eclasses, item) for item in self.items)


def kernel_of(eclasses: NodeClasses, item: Candidate) -> Kernel | None:
    """Return the kernel of a candidate; ``None`` if it runs nothing that is priced."""
    if not item.steps:
        return None
    exponents = {
        ref for step in item.steps if step.op in _VALUE_MATTERS for ref in step.operands[1:]
    }
    operands = []
    for i, ref in enumerate(item.operands):
        type_ = eclasses.types[ref.cls]
        if not isinstance(type_, TensorType):
            return None
        shape = type_.shape if ref.shape is None else ref.shape
        value = eclasses.scalar(ref.cls) if i in exponents else None
        type_ = TensorType(type_.dtype, shape)
        operands.append(Operand(type_, bool(eclasses.is_const[ref.cls]), value, ref.form))
    return Kernel(tuple(operands), item.steps, item.outputs, item.writes)
