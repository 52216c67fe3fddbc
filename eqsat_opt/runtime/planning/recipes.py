"""Recipes that rebuild the constants of a graph from the tensors that its model stores."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from eqsat_opt.errors import PlanError
from eqsat_opt.ir.graph.graph import Constant
from eqsat_opt.ir.graph.handles import Expression, Splat
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.plan.constants import Tensors, Weights
from eqsat_opt.runtime.plan.plan import ComputedConstant, Literal, Recipe, Stored

__all__ = ["Recipes"]

_FEW = 64
"""Largest number of elements of a constant whose values a plan holds itself."""


class Recipes:
    """Recipes by the names of constants, each after those that it needs.

    Args:
        tensors: the tensors that the model stores.
        taken: names that are in use already.
    """

    def __init__(self, tensors: Tensors, taken: Mapping[str, object]) -> None:
        self.made: dict[str, Recipe] = {}
        self.types: dict[str, TensorType] = {}
        self._tensors = Weights.of(tensors)
        self._taken = taken
        self._names: dict[str, str] = {}  # names of constants made as operands, by digest
        self._count = 0

    def add(self, name: str, constant: Constant) -> None:
        """Make the recipe of a constant.

        Args:
            name: its name in the graph.
            constant: a constant of a static numeric type.

        Raises:
            PlanError: the model does not store it, it is no expression of other constants, and it
                has too many elements to be held by the plan.
        """
        recipe: Recipe | None = self._stored(name, constant)
        if recipe is None and constant.type.size <= _FEW:
            recipe = _literal(constant)
        recipe = recipe or self._computed(constant) or _literal(constant)
        if recipe is None:
            raise PlanError(
                f"the constant {name!r}, {constant.type}, is not stored in the model; write the "
                "model as a file first, and plan from that"
            )
        self.made[name], self.types[name] = recipe, constant.type

    def _stored(self, name: str, constant: Constant) -> Stored | None:
        """Find the constant among the model's tensors, by its own name or that of its source."""
        if isinstance(constant.source, Expression | Splat):
            names = [name] if name in self._tensors else []
        else:
            known = (name, str(getattr(constant.source, "name", name)))
            names = [one for one in dict.fromkeys(known) if one in self._tensors]
        if not names:
            return None
        digest, of = self._tensors.digest_of_constant(constant), self._tensors.digest
        return next((Stored(one, digest) for one in names if of(one) == digest), None)

    def _computed(self, constant: Constant) -> ComputedConstant | None:
        source = constant.source
        if not isinstance(source, Expression):
            return None
        count = len(source.operands)
        body = Kernel(
            tuple(Operand(one.type, const=True) for one in source.operands),
            (Step(source.op, source.attrs, tuple(range(count))),),
            (count,),
        )
        if body.types[count] != constant.type:
            return None
        try:
            return ComputedConstant(body, tuple(map(self._operand, source.operands)))
        except PlanError:
            return None

    def _operand(self, constant: Constant) -> str:
        """Add the recipe of a constant that another one needs, once, and return its name."""
        if constant.digest not in self._names:
            self._count += 1
            name = f"constant {self._count}"
            while name in self._taken:
                name += "_"
            self.add(name, constant)
            self._names[constant.digest] = name
        return self._names[constant.digest]


def _literal(constant: Constant) -> Literal | None:
    """Return the values of a constant of equal or few elements; ``None`` for any other."""
    if isinstance(constant.source, Splat) and constant.type.size:
        flat = np.asarray(constant.source.value).reshape(-1)
    else:
        flat = np.asarray(constant.load()).reshape(-1)
    if flat.dtype.kind == "c":
        return None
    if not flat.size:
        return Literal((0,))
    if flat.tobytes() == np.full_like(flat, flat[0]).tobytes():
        return Literal((_number(flat[0]),))
    return Literal(tuple(map(_number, flat))) if flat.size <= _FEW else None


def _number(value: np.generic) -> bool | int | float:
    """Convert a NumPy scalar to Python; types that NumPy lacks are floating point."""
    item = value.item()
    return item if isinstance(item, bool | int | float) else float(item)
