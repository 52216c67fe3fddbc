"""Products of NumPy within a plan run on one thread, whatever the process has set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.plans import tensors_of
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.graph.evaluation import evaluate_kernel
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.lab.testing.graphs import GraphMaker
from eqsat_opt.runtime.backends.numpy import blas, launcher
from eqsat_opt.runtime.backends.numpy.blas import on_one_thread
from eqsat_opt.runtime.backends.registry import load_launcher
from eqsat_opt.runtime.devices.host import HostDevice
from eqsat_opt.runtime.executor import Executable
from eqsat_opt.runtime.plan.constants import make_constants
from eqsat_opt.runtime.planning.planner import make_plan

needs_openblas = pytest.mark.skipif(not blas.blas_libraries(), reason="NumPy has no OpenBLAS here")


def threads() -> list[int]:
    return [read() for read, _ in blas.blas_libraries()]


@needs_openblas
def test_one_thread_while_a_plan_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    g = GraphMaker()
    graph = g.graph(g("Relu", g("MatMul", g.input("x", 2, 3), g.weight(3, 4))))
    plan = make_plan(graph, tensors_of(graph), lambda node: "numpy")
    seen = []

    def watched(body: Kernel, values: Sequence[Any]) -> Any:
        seen.append(threads())
        return evaluate_kernel(body, values)

    monkeypatch.setattr(launcher, "evaluate_kernel", watched)
    constants = make_constants(plan, tensors_of(graph))
    runner = Executable(plan, constants, HostDevice(), {"numpy": load_launcher("numpy")})
    before = threads()
    runner.run({"x": np.ones((2, 3), np.float32)})
    # The Relu has no product in it, so nothing is said on its account.
    assert seen == [[1] * len(before), before]
    assert threads() == before


@needs_openblas
def test_threads_are_as_before_when_a_product_fails() -> None:
    before = threads()

    def fail() -> None:
        raise RuntimeFailed("no")

    with pytest.raises(RuntimeFailed, match="no"):
        on_one_thread(fail)
    assert threads() == before


def test_where_nothing_tells_what_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "_MAPS", Path("no/such/file"))
    assert blas._loaded() == []
