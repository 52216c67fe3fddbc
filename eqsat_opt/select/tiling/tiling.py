"""Tiling: all candidates of an e-graph, from single operators, patterns and concatenations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.egraph import EClasses
from eqsat_opt.egraph.terms import LEAF, OUT
from eqsat_opt.ir.graph.graph import OPAQUE
from eqsat_opt.ir.graph.kernel import Step
from eqsat_opt.ir.ops import get_op, with_trait
from eqsat_opt.ir.values.dims import literal
from eqsat_opt.ir.values.types import StaticType, TensorType
from eqsat_opt.rules.patterns import operators_of
from eqsat_opt.runtime.backends.protocol import Backend, KernelPattern
from eqsat_opt.select.tiling.candidates import Candidate, Candidates, OperandRef
from eqsat_opt.select.tiling.carried_forms import amid, classes_in
from eqsat_opt.select.tiling.classes import NodeClasses
from eqsat_opt.select.tiling.concatenations import concatenations, joint_kernels
from eqsat_opt.select.tiling.matching import PatternMatch, Tiled, match_at

__all__ = ["Patterns", "candidate_of", "kernels_at", "patterns_of", "tile"]

_BROADCASTING = with_trait("broadcasting") - with_trait("truth") - with_trait("moving")
"""Elementwise operators of two numbers, for which models leave out leading axes of size 1."""


@dataclass
class _Body:
    """Builder of one candidate, which collects its steps."""

    eclasses: NodeClasses
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
        """Return operand classes, in one order if commutative: mirror images are one kernel."""
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


def _stripped(eclasses: NodeClasses, cls: int, node: int) -> tuple[int, ...] | None:
    """Return the shape of a broadcast constant without leading axes of size 1, as in models.

    The result is ``None`` if it keeps its shape: the rank of the result may be that of the
    constant.
    """
    type_ = eclasses.types[cls]
    if not eclasses.is_const[cls] or not isinstance(type_, StaticType):
        return None
    if eclasses.op[node] not in _BROADCASTING or not any(
        _rank(eclasses, other) >= type_.rank for other in eclasses.children(node) if other != cls
    ):
        return None
    shape = type_.shape
    start = next((i for i, d in enumerate(shape) if d != 1), len(shape))
    return shape[start:] if start else None


def _rank(eclasses: NodeClasses, cls: int) -> int:
    type_ = eclasses.types[cls]
    return type_.rank if isinstance(type_, TensorType) else -1


def _absorb_bias(body: _Body) -> None:
    """Merge a Conv and the addition of a channel bias into one Conv with three operands."""
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


def candidate_of(eclasses: NodeClasses, kind: str, match: PatternMatch) -> Candidate:
    """Return the kernel that computes the e-nodes of a match."""
    body = _Body(eclasses, match.covered)
    body.emit(match.root)
    _absorb_bias(body)
    steps = body.steps()
    reads = tuple(dict.fromkeys(ref.cls for ref in body.operands))
    last = len(body.operands) + len(steps) - 1
    return Candidate(
        cls=match.root,
        kind=kind,
        nodes=tuple(body.nodes),
        reads=reads,
        operands=tuple(body.operands),
        steps=steps,
        outputs=(last,),
    )


def _single(eclasses: NodeClasses, node: int) -> Candidate:
    cls, op = int(eclasses.class_of[node]), eclasses.op[node]
    children = tuple(dict.fromkeys(eclasses.children(node)))
    if op == LEAF:
        return Candidate(cls, "leaf", (node,), ())
    if op in (OPAQUE, OUT):
        return Candidate(cls, "opaque" if op == OPAQUE else "out", (node,), children)
    return candidate_of(eclasses, "op", PatternMatch(cls, {cls: node}))


Patterns = Mapping[str, Sequence[tuple[str, KernelPattern]]]
"""Patterns by operator at the root, each with its backend."""


def patterns_of(backends: Iterable[Backend]) -> Patterns:
    """Return the patterns that backends fuse, by operator at the root."""
    by_root: dict[str, list[tuple[str, KernelPattern]]] = defaultdict(list)
    for backend in backends:
        for pattern in backend.patterns():
            for op in operators_of(pattern.pattern):
                by_root[op].append((backend.name, pattern))
    return by_root


def kernels_at(tiled: Tiled, node: int, by_root: Patterns) -> Iterator[Candidate]:
    """Yield the kernels that compute an e-node: alone, and by each match of a pattern."""
    eclasses = tiled.eclasses
    yield _single(eclasses, node)
    cls = int(eclasses.class_of[node])
    for name, pattern in by_root.get(eclasses.op[node], ()):
        for match in match_at(tiled, pattern, cls, node):
            yield replace(candidate_of(eclasses, pattern.name, match), fused_by=(name,))


def tile(
    eclasses: EClasses, backends: Sequence[Backend], deadline: Deadline | None = None
) -> Candidates:
    """Return all candidates: operators, pattern matches, flat concatenations, joint results.

    A constant class has one candidate that costs nothing but bytes; how it is folded is decided
    when raising. Where the model computes it from others, these may be stored instead: a runtime
    folds the expressions that it finds. The number of candidates is linear in that of e-nodes.

    Args:
        eclasses: the e-graph.
        backends: backends whose patterns are kernels that compute several operators at once.
        deadline: time after which e-nodes that are not tiled yet are left out, except those of the
            model.
    """
    by_root = patterns_of(backends)
    forms = [(one, classes_in(eclasses, one)) for b in backends for one in b.carried()]
    items: dict[object, Candidate] = {}

    def add(candidate: Candidate) -> None:
        # The same kernel on the same operands may cover different spellings; the first is kept for
        # all.
        candidate = amid(candidate, forms)
        body = (candidate.operands, candidate.steps) if candidate.steps else candidate.nodes
        key = (candidate.cls, body, candidate.reads, candidate.index)
        known = items.setdefault(key, candidate)
        if known.fused_by and known.fused_by != candidate.fused_by:
            fused_by = tuple(dict.fromkeys((*known.fused_by, *candidate.fused_by)))
            items[key] = replace(known, fused_by=fused_by if candidate.fused_by else ())

    tiled = Tiled(eclasses)
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
            if eclasses.children(node) and not eclasses.origin[node]:
                reads = tuple(dict.fromkeys(eclasses.children(node)))
                add(Candidate(cls, "made", (node,), reads))
            continue
        if op == "Concat" and len(eclasses.children(node)) == 2:
            pairs.append(node)
            continue
        for candidate in kernels_at(tiled, node, by_root):
            add(candidate)
    for candidate in concatenations(eclasses, pairs, deadline):
        add(candidate)
    for candidate in joint_kernels(eclasses, eclasses.n_classes):
        add(candidate)
    ordered = sorted(items.values(), key=lambda c: c.cls)
    count = max((c.cls for c in ordered), default=-1) + 1
    return Candidates(eclasses, tuple(ordered), max(count, eclasses.n_classes))
