"""The comparison: what the registry computes beside onnx.reference and onnxruntime."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import onnx
import onnxruntime as ort
from onnx.reference import ReferenceEvaluator

from eqsat_opt.ir.ops import Array
from tests.conformance.operator_grid.configuration import Configuration
from tests.conformance.operator_grid.excuses import excuses
from tests.conformance.operator_grid.generation import configurations

__all__ = [
    "PARTS", "PEERS", "Outcome", "Verdict", "comparable", "difference", "faults", "judge",
    "verdicts",
]  # fmt: skip

REGISTRY = "the registry"
Outcome = Literal["agrees", "differs", "refuses"]


@dataclass(frozen=True)
class Verdict:
    """What one peer says about one configuration.

    Attributes:
        configuration: what was compared.
        peer: with whom, or :data:`REGISTRY`.
        outcome: whether it computed the same, something else, or nothing.
        detail: what differs, or why it refuses.
    """

    configuration: Configuration
    peer: str
    outcome: Outcome
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.peer} {self.outcome}: {self.configuration.label}: {self.detail}"


def _run_reference(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    results = ReferenceEvaluator(model).run(None, dict(feeds))
    return [np.asarray(result) for result in results]


def _run_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """The operators as they are: no fusion, no other layout, one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return [np.asarray(result) for result in session.run(None, dict(feeds))]


PEERS: Mapping[str, Callable[[onnx.ModelProto, Mapping[str, Array]], list[Array]]] = {
    "onnx.reference": _run_reference,
    "onnxruntime": _run_onnxruntime,
}

_TOLERANCE = {"float64": 1e-7, "float32": 2e-5, "float16": 4e-3}
"""Relative, and absolute against operands of about 1; everything else is exact."""


def difference(ours: Sequence[Array], theirs: Sequence[Array]) -> str:
    """The first difference between two lists of outputs, empty if there is none."""
    if len(ours) != len(theirs):
        return f"{len(ours)} outputs, not {len(theirs)}"
    for mine, other in zip(ours, theirs, strict=True):
        if mine.dtype != other.dtype:
            return f"ours is {mine.dtype}, theirs {other.dtype}"
        if mine.shape != other.shape:
            return f"ours is {mine.shape}, theirs {other.shape}"
        if mine.tobytes() == other.tobytes():
            continue
        bound = _TOLERANCE.get(str(mine.dtype), 0.0)
        same = np.isclose(
            mine.astype(np.float64), other.astype(np.float64), bound, bound, equal_nan=True
        )
        if not same.all():
            where = tuple(int(i) for i in np.argwhere(~same)[0])
            wrong = int((~same).sum())
            return f"ours {mine[where]}, theirs {other[where]} at {where}, {wrong} of {same.size}"
    return ""


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def judge(configuration: Configuration) -> tuple[Verdict, ...]:
    """One verdict per peer; one alone where the registry itself fails, which nothing excuses."""
    try:
        model = configuration.model()
        ours = configuration.ours(model)
    except Exception as error:  # a wrong definition may raise anything
        return (Verdict(configuration, REGISTRY, "refuses", _reason(error)),)
    found = []
    for peer, run in PEERS.items():
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                theirs = run(model, configuration.feeds)
        except Exception as error:  # both raise whatever they meet
            found.append(Verdict(configuration, peer, "refuses", _reason(error)))
            continue
        detail = difference(ours, theirs)
        outcome: Outcome = "differs" if detail else "agrees"
        found.append(Verdict(configuration, peer, outcome, detail))
    return tuple(found)


def faults(found: Sequence[Verdict]) -> list[str]:
    """What speaks against the registry in the verdicts on one configuration.

    A peer without an excuse must agree, and so must one peer at least.
    """
    against = [
        str(verdict)
        for verdict in found
        if verdict.outcome != "agrees" and not excuses(verdict.configuration, verdict.peer)
    ]
    if not against and all(verdict.outcome != "agrees" for verdict in found):
        against = [str(verdict) for verdict in found]
    return against


@cache
def comparable(op: str) -> tuple[Configuration, ...]:
    """The configurations of an operator with which some peer has no excuse."""
    return tuple(c for c in configurations(op) if not all(excuses(c, peer) for peer in PEERS))


PARTS = 3
"""Into so many parts the configurations of an operator are divided."""
_FEW = 20
"""Configurations that are not divided."""


@cache
def verdicts(op: str, part: int = 0) -> tuple[tuple[Verdict, ...], ...]:
    """The verdicts on a part of the comparable configurations of an operator.

    A part is drawn by the labels, so that it does not follow the order in which they are generated;
    few configurations are all in the first part.
    """
    found = comparable(op)
    if len(found) <= _FEW:
        return tuple(map(judge, found)) if part == 0 else ()
    return tuple(judge(one) for one in found if zlib.crc32(one.label.encode()) % PARTS == part)
