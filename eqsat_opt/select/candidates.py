"""Candidates: every way in which the backend could compute an e-class.

A candidate covers some e-nodes, reads some classes and is one kernel. Extraction then chooses one
candidate per needed class; that is substitution, fusion and multi-output selection in one decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from eqsat_opt.egraph import EClasses
from eqsat_opt.ir.kernel import Kernel, Operand, Step
from eqsat_opt.ir.types import TensorType

__all__ = ["Candidate", "Candidates", "OperandRef"]

_VALUE_MATTERS = frozenset({"Pow"})


@dataclass(frozen=True, slots=True)
class OperandRef:
    """A class that a kernel reads; a constant may be read in another shape."""

    cls: int
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to compute a class.

    Attributes:
        cls: the class, or a pseudo-class beyond the e-graph's for a multi-output kernel.
        kind: ``leaf``, ``const``, ``opaque``, ``out``, ``part``, ``op`` or the name of a kernel
            pattern.
        nodes: covered e-nodes, operands first.
        reads: classes that must be computed.
        operands, steps: the kernel's body; empty for what runs nothing.
        outputs: step numbers of the kernel's outputs (one, unless the kernel is a Split).
        index: output number of a ``part``.
    """

    cls: int
    kind: str
    nodes: tuple[int, ...]
    reads: tuple[int, ...]
    operands: tuple[OperandRef, ...] = ()
    steps: tuple[Step, ...] = ()
    outputs: tuple[int, ...] = ()
    index: int = 0


@dataclass(frozen=True)
class Candidates:
    """All candidates of an e-graph.

    Attributes:
        eclasses: where they were found.
        items: sorted by class.
        n_classes: classes of the e-graph and pseudo-classes.
    """

    eclasses: EClasses
    items: tuple[Candidate, ...]
    n_classes: int

    @cached_property
    def kernels(self) -> tuple[Kernel | None, ...]:
        """The kernel of each candidate, ``None`` for what runs nothing that is priced."""
        blocked = _blocked_classes(self.eclasses)
        return tuple(_kernel(self.eclasses, item, blocked) for item in self.items)


_KEEPS_BLOCKS = frozenset(
    {"Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "MaxPool", "AveragePool", "Add", "Concat"}
)
"""Operators that onnxruntime runs in its blocked layout when their data comes in it."""


def _blocked_classes(eclasses: EClasses) -> frozenset[int]:
    """Classes whose values a convolution leaves in blocks of channels, or what keeps them so."""
    blocked: set[int] = set()
    pending = [
        node
        for node, op in enumerate(eclasses.op)
        if (op == "Conv" or op in _KEEPS_BLOCKS) and not eclasses.is_const[eclasses.class_of[node]]
    ]
    count = -1
    while count != len(blocked):
        count = len(blocked)
        for node in pending:
            cls = int(eclasses.class_of[node])
            type_ = eclasses.types[cls]
            if (
                cls in blocked
                or not isinstance(type_, TensorType)
                or type_.rank != 4
                or type_.dtype != "float32"
            ):
                continue
            operands = (c for c in eclasses.children(node) if not eclasses.is_const[c])
            if eclasses.op[node] == "Conv" or all(c in blocked for c in operands):
                blocked.add(cls)
    return frozenset(blocked)


def _kernel(eclasses: EClasses, item: Candidate, blocked: frozenset[int]) -> Kernel | None:
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
        operands.append(
            Operand(TensorType(type_.dtype, shape), bool(eclasses.is_const[ref.cls]), value)
        )
    takes_apart = all(step.op == "Slice" for step in item.steps)
    return Kernel(
        tuple(operands), item.steps, item.outputs, takes_apart and item.operands[0].cls in blocked
    )
