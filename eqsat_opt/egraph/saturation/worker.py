"""Saturation in a child process with a hard deadline.

A step of the engine cannot be interrupted from within, but a child can be killed. The child
receives only terms and returns only arrays, so no weights of the model are copied, except small
constants that lowering has read already.
"""

from __future__ import annotations

import pickle  # noqa: TID251 - what it reads was written by this process and its child alone
import tempfile
from collections.abc import Sequence
from typing import Any, NoReturn

from eqsat_opt.common.child_processes import Child, answer_requests
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.files import Scratch
from eqsat_opt.egraph.frozen import EClasses
from eqsat_opt.egraph.loading.lowering import lower
from eqsat_opt.egraph.saturation.rounds import Budget
from eqsat_opt.egraph.saturation.saturate import Saturation, SaturationReport, saturate_terms
from eqsat_opt.egraph.terms import Lowered
from eqsat_opt.errors import EqsatError, SaturationError
from eqsat_opt.ir.graph.graph import Constant, Graph
from eqsat_opt.ir.graph.handles import Splat
from eqsat_opt.rules.rule import Rule

__all__ = ["saturate_isolated", "serve"]


def _no_bytes() -> NoReturn:
    raise AssertionError("a child process asked for a weight")


def serve() -> None:
    """Answer requests to saturate, as the child process."""

    def answer(header: dict[str, Any], blobs: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
        tempfile.tempdir = header["folder"]
        terms, leaf_names, constants, exact, rules, budget = pickle.loads(blobs[0])
        lowered = Lowered.of_terms(terms, leaf_names, constants, exact=exact)
        try:
            result: object = saturate_terms(lowered, rules, budget)
        except EqsatError as error:
            result = error
        return {}, [pickle.dumps(result, pickle.HIGHEST_PROTOCOL)]

    answer_requests(answer)


def saturate_isolated(
    graph: Graph,
    rules: Sequence[Rule],
    budget: Budget,
    deadline_s: float,
    *,
    exact: bool = False,
) -> Saturation:
    """Run :func:`~eqsat_opt.egraph.saturate` for at most ``deadline_s`` seconds.

    Raises:
        SaturationError: the deadline passed, or the child died.
        RuntimeFailed: the child cannot be started.
    """
    lowered = lower(graph, exact=exact)
    constants = {
        name: Constant(
            c.type, c.digest, _no_bytes, c.source if isinstance(c.source, Splat) else None
        )
        for name, c in lowered.constants.items()
    }
    task = (lowered.terms, lowered.leaf_names, constants, exact, list(rules), budget)
    deadline = Deadline.after(deadline_s)
    with Scratch() as folder:  # a killed child cannot remove its own folder
        child = Child(__name__, "to saturate in")
        try:
            is_ready, reply = child.is_ready(deadline.left_s), None
            if is_ready:
                blobs = (pickle.dumps(task, pickle.HIGHEST_PROTOCOL),)
                reply = child.ask({"folder": folder}, blobs, deadline.left_s)
        finally:
            child.end()
    if reply is None:
        if deadline.expired:
            raise SaturationError(
                f"saturation did not end within {deadline_s:g} s; "
                "allow fewer e-nodes or leave rules out"
            )
        if not is_ready:
            raise child.not_ready()
        raise SaturationError("the saturating process died; allow fewer e-nodes or leave rules out")
    result = pickle.loads(reply[1][0])
    if isinstance(result, EqsatError):
        raise result
    eclasses, report = result
    assert isinstance(eclasses, EClasses)
    assert isinstance(report, SaturationReport)
    return Saturation(lowered, eclasses, report)
