"""Launches in NumPy: every operator of the registry, in any strides, without a workspace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.graph.evaluation import evaluate_kernel
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.ops import get_op
from eqsat_opt.runtime.backends.launching import Bound, Launcher, require_default
from eqsat_opt.runtime.backends.numpy.blas import on_one_thread
from eqsat_opt.runtime.plan.plan import Launch

__all__ = ["NumpyLauncher", "is_launched"]

_SMALL_BYTES = 1 << 20
"""Largest size of a kernel without products that is offered: NumPy is fastest where the cost of
calls dominates, and in products."""


def is_launched(kernel: Kernel) -> bool:
    """Return whether a kernel is offered to NumPy: a product by itself, or a small kernel."""
    if any(step.op == "MatMul" for step in kernel.steps):
        return len(kernel.steps) == 1
    kinds = {get_op(step.op).kind for step in kernel.steps}
    size = kernel.bytes
    return kinds <= {"pointwise", "movement"} and isinstance(size, int) and size <= _SMALL_BYTES


class NumpyLauncher(Launcher):
    """Launcher that evaluates bodies with the operator registry."""

    def version(self) -> str:
        """Return the version of NumPy."""
        return f"numpy {np.__version__}"

    def build(self, launch: Launch, bound: Bound) -> _Evaluation | _Product:
        """Build the evaluation on this memory.

        Raises:
            RuntimeFailed: the algorithm is unknown.
        """
        require_default(launch)
        evaluation = _Evaluation(launch, bound)
        kinds = {get_op(step.op).kind for step in launch.body.steps}
        return _Product(evaluation) if "contraction" in kinds else evaluation


@dataclass(frozen=True, eq=False)
class _Evaluation:
    launch: Launch
    bound: Bound

    @property
    def name(self) -> str:
        return self.launch.name

    def __call__(self) -> None:
        try:
            results = evaluate_kernel(self.launch.body, self.bound.reads)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise RuntimeFailed(f"launch {self.name!r} failed: {error}") from error
        # A plan never writes over what the same launch reads, so no operand needs a copy.
        for target, result in zip(self.bound.writes, results, strict=True):
            np.copyto(target, result)


@dataclass(frozen=True, eq=False)
class _Product:
    """An evaluation with products, which run on one thread, like everything in a plan."""

    evaluation: _Evaluation

    @property
    def name(self) -> str:
        return self.evaluation.name

    def __call__(self) -> None:
        on_one_thread(self.evaluation)
