"""Candidates: every way in which the backend could compute an e-class.

A candidate covers some e-nodes, reads some classes and is one kernel. Extraction then chooses one
candidate per needed class; that is substitution, fusion and multi-output selection in one decision.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from eqsat_opt.deadline import Deadline
from eqsat_opt.egraph import EClasses
from eqsat_opt.egraph.lowering import LEAF, OUT
from eqsat_opt.ir.dims import literal
from eqsat_opt.ir.graph import OPAQUE
from eqsat_opt.ir.kernel import Kernel, Operand, Step
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.types import TensorType
from eqsat_opt.runtime.patterns import KernelPattern
from eqsat_opt.select.matching import Match, match_at

__all__ = ["Candidate", "Candidates", "OperandRef", "tile"]

_BROADCASTING = frozenset({"Add", "Sub", "Mul", "Div", "Pow", "Min", "Max"})
_CONCAT_VARIANTS = 3
_CONCAT_OPERANDS = 256
_CONCAT_ROOM, _CONCAT_ROOM_PER_NODE = 4_096, 4
"""Operands of all flat concatenations together: some, and some more for each e-node."""

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


@dataclass
class _Body:
    """Collects the steps of one candidate."""

    eclasses: EClasses
    covered: dict[int, int]
    operands: list[OperandRef] = field(default_factory=list)
    pending: list[tuple[str, tuple[object, ...], list[tuple[bool, int]]]] = field(
        default_factory=list
    )
    nodes: list[int] = field(default_factory=list)
    done: dict[int, tuple[bool, int]] = field(default_factory=dict)

    def operand(self, cls: int, node: int) -> tuple[bool, int]:
        ref = OperandRef(cls, _stripped(self.eclasses, cls, node))
        if ref not in self.operands:
            self.operands.append(ref)
        return False, self.operands.index(ref)

    def emit(self, cls: int) -> tuple[bool, int]:
        if cls in self.done:
            return self.done[cls]
        node = self.covered[cls]
        refs = [
            self.emit(child) if child in self.covered else self.operand(child, node)
            for child in self._operands(node)
        ]
        self.pending.append((self.eclasses.op[node], self.eclasses.attrs[node], refs))
        self.nodes.append(node)
        self.done[cls] = (True, len(self.pending) - 1)
        return self.done[cls]

    def _operands(self, node: int) -> tuple[int, ...]:
        """Operand classes; in one order if commutative, so that mirror images are one kernel."""
        children = self.eclasses.children(node)
        if not get_op(self.eclasses.op[node]).commutative:
            return children
        return tuple(
            sorted(
                children, key=lambda c: (c not in self.covered, bool(self.eclasses.is_const[c]), c)
            )
        )

    def steps(self) -> tuple[Step, ...]:
        base = len(self.operands)
        return tuple(
            Step(op, attrs, tuple(base + i if is_step else i for is_step, i in refs))  # type: ignore[arg-type]
            for op, attrs, refs in self.pending
        )


def _stripped(eclasses: EClasses, cls: int, node: int) -> tuple[int, ...] | None:
    """A broadcast constant without its leading axes of size 1, as models spell it.

    ``None`` where it stays as it is: the rank of the result may be that of the constant.
    """
    type_ = eclasses.types[cls]
    if not eclasses.is_const[cls] or not isinstance(type_, TensorType) or not type_.is_static:
        return None
    if eclasses.op[node] not in _BROADCASTING or not any(
        _rank(eclasses, other) >= type_.rank for other in eclasses.children(node) if other != cls
    ):
        return None
    shape = type_.static_shape()
    start = next((i for i, d in enumerate(shape) if d != 1), len(shape))
    return shape[start:] if start else None


def _rank(eclasses: EClasses, cls: int) -> int:
    type_ = eclasses.types[cls]
    return type_.rank if isinstance(type_, TensorType) else -1


def _absorb_bias(body: _Body) -> None:
    """Conv followed by a channel bias is one Conv with three operands."""
    if len(body.pending) < 2 or body.pending[0][0] != "Conv" or body.pending[1][0] != "Add":
        return
    sides = body.pending[1][2]
    bias = [i for is_step, i in sides if not is_step]
    if not bias or (True, 0) not in sides:
        return
    if any((False, bias[0]) in refs for _, _, refs in (body.pending[0], *body.pending[2:])):
        return  # another step reads the same constant in its own shape
    ref = body.operands[bias[0]]
    if not body.eclasses.is_const[ref.cls]:
        return
    conv, conv_attrs, conv_refs = body.pending[0]
    out = body.eclasses.types[int(body.eclasses.class_of[body.nodes[0]])]
    assert isinstance(out, TensorType)
    full = body.eclasses.types[ref.cls]
    assert isinstance(full, TensorType)
    if full.shape != (1, out.shape[1], *(1,) * (out.rank - 2)):
        return
    body.operands[bias[0]] = OperandRef(ref.cls, (literal(full.shape[1]),))
    body.pending[:2] = [(conv, conv_attrs, [*conv_refs, (False, bias[0])])]
    for _, _, refs in body.pending[1:]:
        refs[:] = [(is_step, max(i - 1, 0)) if is_step else (is_step, i) for is_step, i in refs]


def _candidate(eclasses: EClasses, kind: str, match: Match) -> Candidate:
    body = _Body(eclasses, match.covered)
    body.emit(match.root)
    _absorb_bias(body)
    steps = body.steps()
    reads = tuple(dict.fromkeys(ref.cls for ref in body.operands))
    last = len(body.operands) + len(steps) - 1
    return Candidate(
        match.root, kind, tuple(body.nodes), reads, tuple(body.operands), steps, (last,)
    )


def _flat_operands(
    eclasses: EClasses, node: int, depth: int = 0
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Ways to flatten a nested concatenation: operand classes and covered nodes; deepest first."""
    left, right = eclasses.children(node)
    found = 0
    if not eclasses.is_const[left] and depth < _CONCAT_OPERANDS:
        for inner in eclasses.nodes_of[left]:
            if eclasses.op[inner] == "Concat" and eclasses.attrs[inner] == eclasses.attrs[node]:
                for operands, nodes in _flat_operands(eclasses, inner, depth + 1):
                    yield (*operands, right), (*nodes, node)
                    found += 1
                    if found >= _CONCAT_VARIANTS:
                        break
            if found >= _CONCAT_VARIANTS:
                break
    yield (left, right), (node,)


def _concat(
    eclasses: EClasses, node: int, operands: tuple[int, ...], nodes: tuple[int, ...]
) -> Candidate:
    refs = {cls: i for i, cls in enumerate(dict.fromkeys(operands))}
    step = Step("Concat", eclasses.attrs[node], tuple(refs[c] for c in operands))
    return Candidate(
        int(eclasses.class_of[node]), "concat", nodes, tuple(refs),
        tuple(OperandRef(c) for c in refs), (step,), (len(refs),),
    )  # fmt: skip


def _concats(eclasses: EClasses, pairs: Sequence[int]) -> Iterator[Candidate]:
    """Concatenations of two as they are, and flat ones as far as there is room for operands.

    A concatenation of n is n - 1 pairs, and to flatten each of them would take n² operands. So the
    outermost, which no other one continues, come first, and each once before any in another way.
    """
    room = _CONCAT_ROOM + _CONCAT_ROOM_PER_NODE * eclasses.n_nodes
    attrs, classes = eclasses.attrs, eclasses.class_of
    continued = {(eclasses.children(node)[0], attrs[node]) for node in pairs}
    outermost = [node for node in pairs if (int(classes[node]), attrs[node]) not in continued]
    pending, whole = [*reversed(pairs), *reversed(outermost)], set(pairs)
    other_ways: dict[int, Iterator[tuple[tuple[int, ...], tuple[int, ...]]]] = {}
    while pending:
        node = pending.pop()
        if node in other_ways:
            continue
        ways = other_ways[node] = _flat_operands(eclasses, node)
        operands, nodes = next(ways) if room > 0 else (eclasses.children(node), (node,))
        yield _concat(eclasses, node, operands, nodes)
        room -= len(operands)
        if len(nodes) >= _CONCAT_OPERANDS:  # the rest of it is a concatenation of its own
            pending += [n for n in eclasses.nodes_of[operands[0]] if n in whole]
    for node, ways in other_ways.items():
        for operands, nodes in ways if room > 0 else ():
            yield _concat(eclasses, node, operands, nodes)
            room -= len(operands)
        yield _concat(eclasses, node, eclasses.children(node), (node,))


def _partitions(slices: dict[tuple[int, int], int], size: int) -> list[list[int]]:
    """Covers of ``[0, size)`` by neighbouring slices: those of shortest and longest steps."""
    by_start: dict[int, list[int]] = defaultdict(list)
    for lo, hi in slices:
        by_start[lo].append(hi)
    covers: dict[tuple[int, ...], None] = {}
    for pick in (min, max):
        position, cover = 0, []
        while position < size:
            ends = [hi for hi in by_start.get(position, ()) if hi - position < size]
            if not ends:
                break
            end = pick(ends)
            cover.append(slices[(position, end)])
            position = end
        else:
            if len(cover) > 1:
                covers[tuple(cover)] = None
    return [list(cover) for cover in covers]


def _splits(eclasses: EClasses, first_pseudo: int) -> Iterator[Candidate]:
    """One Split for adjacent Slices: a pseudo-class computes all parts, and each part is free."""
    pseudo = first_pseudo
    by_source: dict[tuple[int, int], dict[tuple[int, int], int]] = defaultdict(dict)
    for node, op in enumerate(eclasses.op):
        if op == "Slice" and not eclasses.is_const[eclasses.class_of[node]]:
            attrs: dict[str, Any] = dict(eclasses.attrs[node])
            slices_of = by_source[(eclasses.children(node)[0], attrs["axis"])]
            slices_of[(attrs["lo"], attrs["hi"])] = node
    for (source, axis), slices in by_source.items():
        type_ = eclasses.types[source]
        if not isinstance(type_, TensorType) or not isinstance(size := type_.shape[axis], int):
            continue
        for cover in _partitions(slices, size):
            steps = tuple(Step("Slice", eclasses.attrs[node], (0,)) for node in cover)
            outputs = tuple(range(1, len(cover) + 1))
            yield Candidate(
                pseudo, "split", tuple(cover), (source,), (OperandRef(source),), steps, outputs
            )
            for index, node in enumerate(cover):
                yield Candidate(
                    int(eclasses.class_of[node]), "part", (node,), (pseudo,), index=index
                )
            pseudo += 1


def _single(eclasses: EClasses, node: int) -> Candidate:
    cls, op = int(eclasses.class_of[node]), eclasses.op[node]
    children = tuple(dict.fromkeys(eclasses.children(node)))
    if op == LEAF:
        return Candidate(cls, "leaf", (node,), ())
    if op in (OPAQUE, OUT):
        return Candidate(cls, "opaque" if op == OPAQUE else "out", (node,), children)
    return _candidate(eclasses, "op", Match(cls, {cls: node}))


def tile(
    eclasses: EClasses, patterns: Sequence[KernelPattern], deadline: Deadline | None = None
) -> Candidates:
    """All candidates: single operators, pattern matches, flat concatenations and splits.

    A constant class has one candidate that costs nothing but bytes; how it is folded is decided
    when raising. The number of candidates is linear in that of e-nodes.

    Args:
        eclasses: the e-graph.
        patterns: kernels that compute several operators at once.
        deadline: when to leave out the e-nodes that are not tiled yet; those of the model never
            are.
    """
    by_root: dict[str, list[KernelPattern]] = defaultdict(list)
    for pattern in patterns:
        for op in pattern.pattern.ops:
            by_root[op].append(pattern)
    items: dict[object, Candidate] = {}

    def add(candidate: Candidate) -> None:
        # The same kernel on the same operands may cover different spellings; the first one stands
        # for all.
        body = (candidate.operands, candidate.steps) if candidate.steps else candidate.nodes
        items.setdefault((candidate.cls, body, candidate.reads, candidate.index), candidate)

    constants: set[int] = set()
    pairs: list[int] = []
    for node in sorted(range(eclasses.n_nodes), key=lambda n: bool(eclasses.origin[n])):
        if deadline is not None and eclasses.origin[node] and deadline.expired:
            break
        cls, op = int(eclasses.class_of[node]), eclasses.op[node]
        if eclasses.is_const[cls]:
            if cls not in constants:
                constants.add(cls)
                add(Candidate(cls, "const", (node,), ()))
            continue
        if op == "Concat" and len(eclasses.children(node)) == 2:
            pairs.append(node)
            continue
        add(_single(eclasses, node))
        for pattern in by_root.get(op, ()):
            for match in match_at(eclasses, pattern, node):
                add(_candidate(eclasses, pattern.name, match))
    for candidate in _concats(eclasses, pairs):
        add(candidate)
    for candidate in _splits(eclasses, eclasses.n_classes):
        add(candidate)
    ordered = sorted(items.values(), key=lambda c: c.cls)
    count = max((c.cls for c in ordered), default=-1) + 1
    return Candidates(eclasses, tuple(ordered), max(count, eclasses.n_classes))
