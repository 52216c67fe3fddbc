"""The interface that kernels are matched on: classes of an e-graph, or terms of one graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from eqsat_opt.ir.graph.graph import Attrs
from eqsat_opt.ir.values.types import ValueType

__all__ = ["NodeClasses"]

_Item = TypeVar("_Item", covariant=True)


class _By(Protocol[_Item]):
    """Items by number."""

    def __getitem__(self, number: int, /) -> _Item: ...


class NodeClasses(Protocol):
    """Classes of e-nodes, by number; in a graph every class has one."""

    @property
    def class_of(self) -> _By[Any]:
        """Class of each e-node."""

    @property
    def nodes_of(self) -> _By[Sequence[int]]:
        """E-nodes of each class."""

    @property
    def op(self) -> _By[str]:
        """Operator of each e-node."""

    @property
    def attrs(self) -> _By[Attrs]:
        """Attributes of each e-node."""

    @property
    def types(self) -> _By[ValueType]:
        """Type of each class."""

    @property
    def is_const(self) -> _By[Any]:
        """Whether each class is known at compile time."""

    def children(self, node: int) -> tuple[int, ...]:
        """Return the classes of the operands of an e-node."""

    def scalar(self, cls: int) -> float | None:
        """Return the value of a uniform constant."""
