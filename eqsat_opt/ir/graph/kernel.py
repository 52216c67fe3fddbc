"""A kernel: a few operator applications that a backend runs at once, closed over typed operands.

Prices are per kernel. The signature of a kernel has everything that its time depends on and nothing
else, so equal work in different models shares one measurement.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.graph.broadcasting import result_type
from eqsat_opt.ir.graph.graph import Attrs, Constant, Graph, Node, sized
from eqsat_opt.ir.graph.outputs import Application, application
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.values.dims import Dim, SymDim, dim_max, evaluate_dim
from eqsat_opt.ir.values.forms import PLAIN, Form
from eqsat_opt.ir.values.types import (
    StaticType,
    TensorType,
    numpy_dtype,
    require_static,
    static_types,
)

__all__ = ["Kernel", "Operand", "Step"]


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of a kernel.

    Attributes:
        type: its tensor type.
        const: whether its value is known when the session is built, so that a runtime packs it
            beforehand.
        value: the literal, for scalars whose value affects the time.
        form: the form in which the operand arrives.
    """

    type: TensorType
    const: bool
    value: float | None = None
    form: Form = PLAIN


@dataclass(frozen=True, slots=True)
class Step:
    """One operator application.

    In ``operands``, numbers below the kernel's operand count are its operands, the others earlier
    steps.
    """

    op: str
    attrs: Attrs
    operands: tuple[int, ...]


@dataclass(frozen=True)
class Kernel:
    """Operator applications that a backend runs at once.

    Attributes:
        operands: the values that it reads.
        steps: the operator applications in order.
        outputs: its results, numbered like operands of steps.
        writes: the form that the outputs should have. If a kernel does not support this form, or
            that of an operand, conversions are part of its price.
    """

    operands: tuple[Operand, ...]
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]
    writes: Form = PLAIN

    @cached_property
    def _hash(self) -> int:
        return hash((self.operands, self.steps, self.outputs, self.writes))

    def __hash__(self) -> int:
        """Return a hash that is computed only once.

        Kernels of hundreds of operands are looked up again and again.
        """
        return self._hash

    @cached_property
    def types(self) -> tuple[TensorType, ...]:
        """Types of all operands and steps."""
        types = [operand.type for operand in self.operands]
        for step in self.steps:
            types.append(result_type(step.op, [types[i] for i in step.operands], dict(step.attrs)))
        return tuple(types)

    @cached_property
    def signature(self) -> str:
        """Canonical JSON of steps, and of types, constness, literals and forms of operands."""
        value: dict[str, Any] = {
            "operands": [_described(operand) for operand in self.operands],
            "steps": [
                [s.op, {k: _plain(v) for k, v in s.attrs}, list(s.operands)] for s in self.steps
            ],
            "outputs": list(self.outputs),
        }
        if self.writes != PLAIN:
            value["writes"] = str(self.writes)
        return json.dumps(value, sort_keys=True, separators=(",", ":"))

    @property
    def name(self) -> str:
        """The operators in readable form: ``Conv+Add+Relu``."""
        return "+".join(step.op for step in self.steps)

    @cached_property
    def static_types(self) -> tuple[StaticType, ...] | None:
        """The types if all sizes are literal, so that the kernel can be measured as it is."""
        # Symbolic sizes of operands may fit only because the model demands it.
        are_known = static_types(operand.type for operand in self.operands) is not None
        return static_types(self.types) if are_known else None

    def required_types(self) -> tuple[StaticType, ...]:
        """Return the types of a kernel whose sizes were fixed before.

        Raises:
            SymbolicSizes: a dimension is symbolic.
        """
        return tuple([require_static(type_) for type_ in self.types])

    @cached_property
    def flops(self) -> Dim:
        """Floating point operations of all steps; one application computes all of its outputs."""
        total: Dim = 0
        seen: set[Application] = set()
        for i, step in enumerate(self.steps, start=len(self.operands)):
            key = application(step.op, step.attrs, step.operands)
            if key is None or key not in seen:
                operands = [self.types[j] for j in step.operands]
                total = total + get_op(step.op).flops(operands, self.types[i], dict(step.attrs))
            seen.update(filter(None, [key]))
        return total

    @cached_property
    def bytes(self) -> Dim:
        """Least bytes to read and write: operands and outputs, no intermediate values."""
        total: Dim = 0
        for type_ in (*(o.type for o in self.operands), *(self.types[i] for i in self.outputs)):
            total = total + type_.bytes
        return total

    @cached_property
    def held_bytes(self) -> Dim:
        """Least bytes of values that are there while it runs: results, and operands that vary.

        Only a result of contractions and windows never lies where an operand does.
        """
        given: Dim = 0
        for operand in self.operands:
            given = given + (0 if operand.const else operand.type.bytes)
        made: Dim = 0
        for number in self.outputs:
            made = made + self.types[number].bytes
        kinds = {get_op(step.op).kind for step in self.steps}
        return given + made if kinds & {"contraction", "window"} else dim_max(given, made)

    @cached_property
    def open_shapes(self) -> int:
        """Number of shapes that have to be computed in each run, since their sizes are symbolic.

        A size that an operand has on the same axis needs no computation, and neither does one other
        size of the shape.
        """
        found = 0
        for step in self.steps:
            target = dict(step.attrs).get("shape")
            if isinstance(target, tuple):
                given = self.types[step.operands[0]].shape
                pairs = zip_longest(target, given[: len(target)])
                open_ = sum(isinstance(dim, SymDim) and dim != own for dim, own in pairs)
                found += open_ > 1
        return found

    def with_sizes(self, sizes: dict[str, int]) -> Kernel:
        """Return the same kernel with symbolic dimensions replaced by sizes."""

        def fix(type_: TensorType) -> StaticType:
            return StaticType(type_.dtype, tuple(evaluate_dim(d, sizes) for d in type_.shape))

        operands = tuple(replace(o, type=fix(o.type)) for o in self.operands)
        steps = tuple(replace(step, attrs=sized(step.attrs, sizes)) for step in self.steps)
        return replace(self, operands=operands, steps=steps)

    @property
    def _places(self) -> set[int]:
        """Operands that hold indices into other operands, of which index 0 always exists."""
        return {
            operand
            for step in self.steps
            for i, operand in enumerate(step.operands)
            if get_op(step.op).element_types.get(i) == "int64"
        }

    def to_graph(self) -> Graph:
        """Return the kernel as a graph with seeded random weights, to be exported and measured."""
        inputs: list[str] = []
        constants: dict[str, Constant] = {}
        types: dict[str, Any] = {}
        names: list[str] = []
        for i, operand in enumerate(self.operands):
            names.append(name := f"x{i}")
            types[name] = operand.type
            if operand.const:
                # The seed determines the contents, and takes less time to hash than the bytes.
                value = 0.0 if i in self._places else operand.value
                seed = f"{operand.type} {value} {i}"
                digest = hashlib.blake2b(seed.encode(), digest_size=16).hexdigest()
                type_ = require_static(operand.type)
                constants[name] = Constant(type_, digest, partial(_weight, type_, value, i))
            else:
                inputs.append(name)
        nodes = []
        for i, step in enumerate(self.steps, start=len(self.operands)):
            names.append(name := f"y{i}")
            types[name] = self.types[i]
            nodes.append(
                Node(
                    step.op,
                    tuple(names[j] for j in step.operands),
                    (name,),
                    step.attrs,
                    name=f"n{i}",
                )
            )
        return Graph(
            inputs=tuple(inputs),
            outputs=tuple(names[i] for i in self.outputs),
            nodes=tuple(nodes),
            constants=constants,
            types=types,
        )

    def __str__(self) -> str:
        shapes = ", ".join(f"{o.type}{'!' if o.const else ''}" for o in self.operands)
        return f"{self.name}({shapes})"


def _described(operand: Operand) -> list[Any]:
    form = () if operand.form == PLAIN else (str(operand.form),)
    return [str(operand.type), operand.const, operand.value, *form]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [v if isinstance(v, int) else str(v) for v in value]
    return str(value) if isinstance(value, SymDim) else value


_DRAWN = 1_000_003
"""Number of values drawn for a weight; a larger weight repeats them, which does not affect a
kernel's time. The period is prime, so it is not a number of rows or blocks.
"""


def _weight(type_: StaticType, value: float | None, index: int) -> npt.NDArray[Any]:
    shape, dtype = type_.shape, numpy_dtype(type_.dtype)
    if value is not None:
        return np.full(shape, value, dtype=dtype)
    rng = np.random.default_rng(index)
    few = min(type_.size, _DRAWN)
    # Positive and near 1, so that divisions, roots and logarithms stay ordinary numbers, and
    # integers can be divisors too.
    least = 0 if dtype.kind == "b" else 1
    drawn = rng.integers(least, 2, few) if dtype.kind in "iub" else rng.uniform(0.5, 1.5, few)
    return np.resize(drawn.astype(dtype), shape)
