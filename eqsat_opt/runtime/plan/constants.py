"""Constants of a plan, made from the tensors of a model according to the plan's recipes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from eqsat_opt.errors import PlanError
from eqsat_opt.ir.graph.evaluation import evaluate_kernel
from eqsat_opt.ir.graph.graph import Constant
from eqsat_opt.ir.values.types import DTYPE_CODES, numpy_dtype
from eqsat_opt.runtime.plan.places import Array
from eqsat_opt.runtime.plan.plan import Buffer, ComputedConstant, Literal, Plan, Stored

__all__ = ["Tensors", "Weights", "digest_of", "dtype_name", "make_constants"]

Tensors = Mapping[str, Callable[[], Array]]
"""Map of the name of a stored tensor to the function that loads it."""


class Weights(Mapping[str, Callable[[], Array]]):
    """Stored tensors whose digests are computed once, for all plans of one model.

    Args:
        tensors: the stored tensors; they must not change.
    """

    def __init__(self, tensors: Tensors) -> None:
        self._tensors = tensors
        self._digests: dict[str, str] = {}
        self._constants: dict[tuple[str, str], str] = {}

    @classmethod
    def of(cls, tensors: Tensors) -> Weights:
        """Wrap stored tensors; return them unchanged if they are wrapped already."""
        return tensors if isinstance(tensors, Weights) else cls(tensors)

    def __getitem__(self, name: str) -> Callable[[], Array]:
        """Return the function that loads a tensor."""
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the stored tensors."""
        return iter(self._tensors)

    def __len__(self) -> int:
        """Return the number of stored tensors."""
        return len(self._tensors)

    def digest(self, name: str) -> str:
        """Return the digest of a stored tensor."""
        if name not in self._digests:
            self._digests[name] = digest_of(self._tensors[name]())
        return self._digests[name]

    def digest_of_constant(self, constant: Constant) -> str:
        """Return the digest of the value of a graph constant; equal handles are read once."""
        key = str(constant.type), constant.digest
        if key not in self._constants:
            self._constants[key] = digest_of(np.asarray(constant.load()))
        return self._constants[key]


_NAMES = {numpy_dtype(name): name for name in DTYPE_CODES if name != "string"}


def dtype_name(array: Array) -> str:
    """Return the name of an array's element type; NumPy's name if the IR has no such type."""
    return _NAMES.get(array.dtype, str(array.dtype))


def digest_of(array: Array) -> str:
    """Return the SHA-256 of element type, extents and elements, in hexadecimal."""
    state = hashlib.sha256(f"{dtype_name(array)}{list(array.shape)}".encode())
    state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return state.hexdigest()


def make_constants(plan: Plan, tensors: Tensors) -> dict[str, Array]:
    """Return the constants by buffer, as dense arrays that cannot be written.

    Raises:
        PlanError: the model lacks a tensor, its tensor differs from the one that the plan was
            made from, or a constant cannot be computed.
    """
    made: dict[str, Array] = {}
    weights = Weights.of(tensors)
    for name, recipe in plan.constants.items():
        buffer = plan.buffer_of[name]
        match recipe:
            case Stored():
                array = _stored(buffer, recipe, weights)
            case Literal(values):
                filled = np.array(values, numpy_dtype(buffer.dtype))
                array = (
                    np.broadcast_to(filled.reshape(()), buffer.dims)
                    if len(values) == 1
                    else filled.reshape(buffer.dims)
                )
            case ComputedConstant(body, operands):
                try:
                    (array,) = evaluate_kernel(body, [made[one] for one in operands])
                except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                    raise PlanError(f"the constant {name!r} cannot be computed: {error}") from error
        made[name] = _frozen(array)
    return made


def _stored(buffer: Buffer, recipe: Stored, tensors: Weights) -> Array:
    if recipe.name not in tensors:
        raise PlanError(
            f"the model has no weight {recipe.name!r}; give the model that the plan was made of"
        )
    array = tensors[recipe.name]()
    if (
        array.shape != buffer.dims
        or array.dtype != numpy_dtype(buffer.dtype)
        or tensors.digest(recipe.name) != recipe.digest
    ):
        raise PlanError(
            f"the weight {recipe.name!r} of the model is another one than when the plan was made; "
            "plan again"
        )
    return array


def _frozen(array: Array) -> Array:
    """Return a read-only dense array: a copy, unless the given one is read-only and dense."""
    dense = np.ascontiguousarray(array)
    if dense.ndim != array.ndim:  # NumPy makes a vector of a scalar
        dense = dense.reshape(array.shape)
    if dense.flags.writeable and dense is array:
        dense = dense.copy()
    dense.flags.writeable = False
    return dense
