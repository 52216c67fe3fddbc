"""Constants of a selection: lazily folded, by handles that compute when they are loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_opt.egraph import EClasses, Lowered
from eqsat_opt.egraph.terms import LEAF
from eqsat_opt.errors import EqsatError, ExtractionError
from eqsat_opt.ir.graph.graph import Attrs, Constant, Graph, Node
from eqsat_opt.ir.graph.handles import Computed, Expression, folding_s, reshaped
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.onnx.folding import evaluate, folding_flops, is_exact
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.passes.nonfinite import spoils
from eqsat_opt.ir.values.types import StaticType, TensorType
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.select.tiling.candidates import CONSTANT, Selection

__all__ = ["Constants", "folded_constant", "in_shape", "late_constants", "spoilt_constants"]

_AS_IT_STANDS = OrtOptions(threads=1, level="disabled")


def _folded_as_run(node: Node, operands: list[Constant], type_: TensorType) -> npt.NDArray[Any]:
    """Evaluate a node bit for bit as at run time.

    The runtime itself computes operators that libraries round differently from this package.
    """
    arrays = [np.asarray(o.load()) for o in operands]
    if is_exact(node.op) or not operands:
        return evaluate(node, arrays, type_)
    types = {"y": type_, **{n: o.type for n, o in zip(node.inputs, operands, strict=True)}}
    graph = Graph(inputs=node.inputs, outputs=("y",), nodes=(node,), constants={}, types=types)
    try:
        session = OrtSession(model_proto(export_model(graph)), _AS_IT_STANDS)
        (result,) = session.run(dict(zip(node.inputs, arrays, strict=True)))
    except EqsatError:
        return evaluate(node, arrays, type_)
    return np.asarray(result)


@dataclass
class Constants:
    """Handles for constant classes: the model's own if there is one, else a folded expression.

    Attributes:
        lowered: the model.
        eclasses: the e-graph.
        memo: handles by class.
        names: names of the model's own constants, by class.
        ranks: number of operators of the cheapest expression, by class.
        made_by: the e-node that a class is folded by.
        spoilt: whether folding leaves the ordinary range of numbers, by class.
    """

    lowered: Lowered
    eclasses: EClasses
    memo: dict[int, Constant] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    ranks: dict[int, int] = field(default_factory=dict)
    made_by: dict[int, int] = field(default_factory=dict)
    spoilt: dict[int, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # The cheapest expression has the fewest operators. Numbers are settled bottom up, which
        # also excludes cycles.
        eclasses = self.eclasses
        pending = [n for n in range(eclasses.n_nodes) if eclasses.is_const[eclasses.class_of[n]]]
        changed = True
        while changed:
            changed = False
            for node in pending:
                children = eclasses.children(node)
                if all(c in self.ranks for c in children):
                    rank = (
                        0 if eclasses.op[node] == LEAF else 1 + sum(self.ranks[c] for c in children)
                    )
                    cls = int(eclasses.class_of[node])
                    if rank < self.ranks.get(cls, rank + 1):
                        self.ranks[cls], changed = rank, True

    def handle(self, cls: int) -> Constant:
        """Return the constant of a class.

        Raises:
            ExtractionError: no expression of it can be folded.
        """
        if cls in self.memo:
            return self.memo[cls]
        eclasses = self.eclasses
        for node in eclasses.nodes_of[cls]:
            children = eclasses.children(node)
            if eclasses.op[node] == LEAF:
                name = self.lowered.leaf_names[int(eclasses.attrs[node][0][1])]  # type: ignore[arg-type]
                self.memo[cls], self.names[cls] = self.lowered.constants[name], name
                return self.memo[cls]
            ranks = [self.ranks.get(c) for c in children]
            if None not in ranks and 1 + sum(r for r in ranks if r is not None) == self.ranks.get(
                cls
            ):
                self.memo[cls] = self._folded(node, [self.handle(c) for c in children])
                self.made_by[cls] = node
                return self.memo[cls]
        raise ExtractionError(f"constant class {cls} cannot be folded; please report this model")

    def is_spoilt(self, cls: int) -> bool:
        """Return whether folding a class leaves the ordinary range of numbers; this folds it."""
        if cls not in self.spoilt:
            self.handle(cls)
            node = self.made_by.get(cls)
            self.spoilt[cls] = node is not None and (
                any(map(self.is_spoilt, self.eclasses.children(node))) or self._spoils(node)
            )
        return self.spoilt[cls]

    def _spoils(self, node: int) -> bool:
        """Return whether folding makes extraordinary numbers, unless the model itself does so."""
        eclasses = self.eclasses
        op, cls = eclasses.op[node], int(eclasses.class_of[node])
        if eclasses.origin[node] == 0 or get_op(op).kind == "movement":
            return False
        operands = [np.asarray(self.memo[c].load()) for c in eclasses.children(node)]
        return spoils(op, dict(eclasses.attrs[node]), operands, self.memo[cls].load())

    def _folded(self, node: int, operands: list[Constant]) -> Constant:
        type_ = self.eclasses.types[int(self.eclasses.class_of[node])]
        assert isinstance(type_, StaticType)  # others are no constants of the frozen e-graph
        return folded_constant(self.eclasses.op[node], self.eclasses.attrs[node], operands, type_)


def folded_constant(
    op: str, attrs: Attrs, operands: Sequence[Constant], type_: StaticType
) -> Constant:
    """Return the constant that an operator of the registry computes, as at run time."""
    operands = list(operands)
    text = f"{op}{attrs}{[o.digest for o in operands]}"
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    folded = Node(op, tuple(f"x{i}" for i in range(len(operands))), ("y",), attrs)

    def compute() -> npt.NDArray[Any]:
        return np.ascontiguousarray(_folded_as_run(folded, operands, type_))

    flops = folding_flops(folded, operands, type_)
    source = Expression(op, attrs, tuple(operands))
    return Constant(type_, digest, Computed(compute, flops, is_kept=True), source)


def in_shape(handle: Constant, shape: tuple[int, ...]) -> Constant:
    """Return a constant with the same elements in another shape."""
    if handle.type.shape == shape:
        return handle
    return reshaped(handle, StaticType(handle.type.dtype, shape), f"{handle.digest}:{shape}")


def _chosen(selection: Selection) -> list[int]:
    return [cls for cls, one in selection.items() if one.candidate.kind in CONSTANT]


def late_constants(constants: Constants, selection: Selection, left_s: float) -> set[int]:
    """Return the constant classes of a selection that cannot be folded in the time left.

    Constants of the model itself are not among them, since it has no other way to compute them.
    """
    eclasses = constants.eclasses
    own = set(eclasses.term_class.tolist())
    late: set[int] = set()
    by_cost = sorted((constants.handle(c).flops, c) for c in _chosen(selection) if c not in own)
    for _, cls in by_cost:
        left_s -= folding_s([constants.handle(cls)])
        if left_s < 0:
            late.add(cls)
    return late


def spoilt_constants(constants: Constants, selection: Selection) -> set[int]:
    """Return the constant classes of a selection whose folding leaves the ordinary range."""
    return {cls for cls in _chosen(selection) if constants.is_spoilt(cls)}
