"""Launches in NumPy: whatever the registry knows, in any strides, without a workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.graph.evaluation import evaluate_kernel
from eqsat_opt.ir.ops import get_op
from eqsat_opt.runtime.backends.launching import Bound
from eqsat_opt.runtime.backends.numpy.blas import on_one_thread
from eqsat_opt.runtime.plan.plan import Buffer, Launch

__all__ = ["NumpyLauncher"]


class NumpyLauncher:
    """Evaluates bodies by the registry."""

    name = "numpy"

    def version(self) -> str:
        """Of NumPy."""
        return f"numpy {np.__version__}"

    def prepare(self, launches: Sequence[Launch], buffers: Mapping[str, Buffer]) -> None:
        """Nothing."""

    def workspace_bytes(self, launch: Launch, buffers: Mapping[str, Buffer]) -> int:
        """None: NumPy allocates what it needs."""
        return 0

    def build(self, launch: Launch, bound: Bound) -> _Evaluation | _Product:
        """The evaluation on this memory.

        Raises:
            RuntimeFailed: the algorithm is unknown.
        """
        if launch.algorithm != "default":
            raise RuntimeFailed(
                f"launch {launch.name!r}: numpy has no algorithm {launch.algorithm!r}; it has "
                "'default'"
            )
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
        # A plan writes nothing over what the same launch reads, so there is nothing to save.
        for target, result in zip(self.bound.writes, results, strict=True):
            np.copyto(target, result)


@dataclass(frozen=True, eq=False)
class _Product:
    """One with products in it: these run on one thread, as everything in a plan does."""

    evaluation: _Evaluation

    @property
    def name(self) -> str:
        return self.evaluation.name

    def __call__(self) -> None:
        on_one_thread(self.evaluation)
