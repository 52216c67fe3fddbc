"""Launches of cuBLASLt: what each asks of it follows from its body and its buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.absent import AbsentLauncher
from eqsat_opt.runtime.backends.products import Product, product_of
from eqsat_opt.runtime.plan.plan import Buffer, Launch

__all__ = ["CublasLtLauncher", "product_of_launch"]

_VERSION = 1
"""Of what plans ask for; which algorithm runs is chosen where it runs."""


class CublasLtLauncher(AbsentLauncher):
    """Says what a launch asks of cuBLASLt."""

    name = "cublaslt"

    def version(self) -> str:
        """Of what plans ask for."""
        return f"cublaslt {_VERSION}"

    def prepare(self, launches: Sequence[Launch], buffers: Mapping[str, Buffer]) -> None:
        """Check all launches.

        Raises:
            RuntimeFailed: one is no product as cuBLASLt has it.
        """
        for launch in launches:
            product_of_launch(launch, buffers)


def product_of_launch(launch: Launch, buffers: Mapping[str, Buffer]) -> Product:
    """What a launch asks of cuBLASLt, on the memory that the plan gives it.

    Raises:
        RuntimeFailed: it is no product as cuBLASLt has it.
    """
    strides = [buffers[name].strides for name in (*launch.reads, *launch.writes)]
    product = product_of(launch.body, strides)
    if product is None:
        raise RuntimeFailed(f"cuBLASLt has no kernel for launch {launch.name!r}: plan again")
    return product
