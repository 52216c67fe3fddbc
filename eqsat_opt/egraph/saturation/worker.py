"""Saturation in a child process with a hard deadline.

A step of the engine cannot be interrupted from within, but a child can be killed. The child
receives only terms and returns only arrays, so no weights of the model are copied, except small
constants that lowering has read already.
"""

from __future__ import annotations

import multiprocessing
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from types import ModuleType
from typing import NoReturn

from eqsat_opt.common.child_processes import end_with_parent
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

__all__ = ["saturate_isolated"]


def _no_bytes() -> NoReturn:
    raise AssertionError("a child process asked for a weight")


def _serve(pipe: Connection, folder: str) -> None:
    end_with_parent()
    tempfile.tempdir = folder
    try:
        terms, leaf_names, constants, exact, rules, budget = pipe.recv()
        lowered = Lowered.of_terms(terms, leaf_names, constants, exact=exact)
        result: object = saturate_terms(lowered, rules, budget)
    except EqsatError as error:
        result = error
    pipe.send(result)


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block; a child started in it never sees any.

    The parent handles it: a child would print a traceback, and so would one that is half started.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    seen: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, _frame: seen.append(number))
    try:
        resource_tracker.ensure_running()  # starting it along with the child would undo the mask
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # children inherit it
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if previous is None else previous)
    if seen:
        raise KeyboardInterrupt


@contextmanager
def _main_hidden() -> Iterator[None]:
    """Hide the caller's script, because a spawned child would run it again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


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
        SaturationError: the deadline passed, the child died, or this process may have none.
    """
    if multiprocessing.current_process().daemon:
        raise SaturationError(
            "a hard deadline needs a child process, and a daemonic process, such as one of "
            "multiprocessing.Pool, may have none; set no deadline, or use concurrent.futures"
        )
    lowered = lower(graph, exact=exact)
    constants = {
        name: Constant(
            c.type, c.digest, _no_bytes, c.source if isinstance(c.source, Splat) else None
        )
        for name, c in lowered.constants.items()
    }
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    scratch = Scratch()  # a killed child cannot remove its own folder
    child = context.Process(target=_serve, args=(theirs, scratch.path), daemon=True)
    try:
        with _interrupts_deferred(), _main_hidden():
            child.start()
        ours.send((lowered.terms, lowered.leaf_names, constants, exact, list(rules), budget))
        theirs.close()
        if not ours.poll(deadline_s):
            raise SaturationError(
                f"saturation did not end within {deadline_s:g} s; "
                "allow fewer e-nodes or leave rules out"
            )
        try:
            result = ours.recv()
        except EOFError:
            raise SaturationError(
                "the saturating process died; allow fewer e-nodes or leave rules out"
            ) from None
    finally:
        if child.pid is not None:
            child.kill()
            child.join()
        ours.close()
        scratch.close()
    if isinstance(result, EqsatError):
        raise result
    eclasses, report = result
    assert isinstance(eclasses, EClasses)
    assert isinstance(report, SaturationReport)
    return Saturation(lowered, eclasses, report)
