"""Random inputs for any model signature, for checks, races and kernel measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from eqsat_opt.errors import ModelError, OptionError
from eqsat_opt.ir.sizes.sizes import assumed_size
from eqsat_opt.ir.values.dim_names import declared_dim, plain_names
from eqsat_opt.ir.values.dims import Dim, SymDim, evaluate_dim, plain_symbol
from eqsat_opt.runtime.choices import choosing_values
from eqsat_opt.runtime.generators import Generator, suggested_generator
from eqsat_opt.runtime.source import ModelSource, read_structure

__all__ = [
    "InputSpec",
    "input_specs",
    "integer_ends",
    "random_inputs",
    "sizes_for",
    "symbolic_sizes",
]

_MAX_ELEMENTS = 2**28
_WORDS = ("a", "bc", "def", "ghij")
# Indices, ids and masks are all valid when they are 0 or 1, whatever they select from.
_SAFE_INDEX_BOUND = 2
_INDEX_TYPES = (TensorProto.INT32, TensorProto.INT64)
_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_ALONG_ONE_AXIS = {"Gather", "GatherElements", "ScatterElements", "Scatter"}
_PLACES = _ALONG_ONE_AXIS | {"GatherND", "ScatterND"}
"""Operators whose second operand holds indices into the first one."""
_ELEMENT_TYPES = {value: name for name, value in TensorProto.DataType.items()}


@dataclass(frozen=True)
class InputSpec:
    """One input that has to be fed.

    Attributes:
        name: name in the graph.
        elem_type: `TensorProto.DataType` of the elements.
        shape: one entry per axis: a size, the name of a symbolic dim (by `fresh_dim` if the model
            gives it none), or an expression of other dims; None if even the rank is unknown.
        is_sequence: the value is a list of such tensors, or of such maps.
        map_key: `TensorProto.DataType` of the keys of a map to scalars; None for a tensor.
        index_bound: integers must be in [0, index_bound) if they are known to be indices.
        choices: integers that choose a branch of the model; all others choose the remaining branch.
        generator: draws the values as the user wants; ``None`` where they follow from the rest.
    """

    name: str
    elem_type: int
    shape: tuple[int | str | SymDim, ...] | None
    is_sequence: bool = False
    index_bound: int | None = None
    map_key: int | None = None
    choices: tuple[int, ...] = ()
    generator: Generator | None = None

    @property
    def is_tensor(self) -> bool:
        """Whether the value is one tensor."""
        return not self.is_sequence and self.map_key is None


def input_specs(
    model: ModelSource, derived: Mapping[str, Dim] | None = None
) -> tuple[InputSpec, ...]:
    """Return the inputs of `model` that have no default value, in order.

    Args:
        model: the model that declares them.
        derived: symbolic dims that are expressions of others or numbers, besides those whose names
            are such expressions.

    Raises:
        ModelError: the model cannot be read, or an input is a sparse or opaque value.
    """
    graph = read_structure(model).graph
    defaults = {tensor.name for tensor in graph.initializer}
    defaults.update(tensor.values.name for tensor in graph.sparse_initializer)
    bounds, choices = _index_bounds(graph), choosing_values(graph)
    plain = plain_names(
        dim.dim_param for value in graph.input for dim in value.type.tensor_type.shape.dim
    )
    reader = _DimReader(plain, derived or {})
    return tuple(
        replace(_spec(value, bounds.get(value.name), reader), choices=choices.get(value.name, ()))
        for value in graph.input
        if value.name not in defaults
    )


@dataclass(frozen=True)
class _DimReader:
    """A reader of declared dimensions: sizes, symbols, and expressions of other dimensions."""

    plain: frozenset[str]
    derived: Mapping[str, Dim]

    def read(
        self, dim: onnx.TensorShapeProto.Dimension, value: str, axis: int
    ) -> int | str | SymDim:
        declared = dim.dim_value if dim.HasField("dim_value") else dim.dim_param
        known = declared_dim(declared, value, axis, self.plain)
        name = plain_symbol(known)
        return known if name is None else self.derived.get(name, name)


def random_inputs(
    model_or_signature: ModelSource | Sequence[InputSpec],
    seed: int,
    dims: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Draw a value for each input: the same seed and signature give the same values.

    A generator of the spec decides. Without one, floats are N(0, 1), unless the name of the input
    means images or sound; masks of texts hide their ends (`suggested_generator`). Integers that
    index a table of known size cover it. Integers that choose a
    branch are one of the values that do. Other 32- and 64-bit integers are 0 or 1, so that they are
    valid as indices, ids and masks; narrower ones are data and cover their range up to ±128. A
    symbolic dim has one size wherever its name occurs.

    Args:
        model_or_signature: a model, or the specs of its inputs.
        seed: seed of the generator.
        dims: sizes of symbolic dims by name; the others get a small default.

    Raises:
        ModelError: an input has a type for which no value can be made, or an absurd size.
        OptionError: `dims` names no symbolic dim of the model, or gives a negative size.
    """
    specs = (
        input_specs(model_or_signature)
        if isinstance(model_or_signature, onnx.ModelProto | str | bytes)
        or not isinstance(model_or_signature, Sequence)
        else tuple(model_or_signature)
    )
    sizes = symbolic_sizes(specs, dims or {})
    generator = np.random.default_rng(seed)
    feeds: dict[str, Any] = {}
    for spec in specs:
        shape = _concrete_shape(spec, sizes)
        draw = _draw if spec.map_key is None else _draw_map
        if spec.is_sequence:
            feeds[spec.name] = [draw(spec, shape, generator) for _ in range(2)]
        else:
            feeds[spec.name] = draw(spec, shape, generator)
    return feeds


def _spec(value: onnx.ValueInfoProto, index_bound: int | None, reader: _DimReader) -> InputSpec:
    type_ = value.type
    if type_.HasField("optional_type"):
        type_ = type_.optional_type.elem_type
    is_sequence = type_.HasField("sequence_type")
    if is_sequence:
        type_ = type_.sequence_type.elem_type
    map_key = None
    if type_.HasField("map_type"):
        map_key, type_ = type_.map_type.key_type, type_.map_type.value_type
    if not type_.HasField("tensor_type"):
        kind = type_.WhichOneof("value") or "untyped value"
        raise ModelError(f"input {value.name!r} is a {kind}; give its value yourself")
    tensor = type_.tensor_type
    shape = None
    if tensor.HasField("shape"):
        dims = enumerate(tensor.shape.dim)
        shape = tuple(reader.read(dim, value.name, axis) for axis, dim in dims)
    if map_key is not None:
        shape = ()
    return InputSpec(
        name=value.name,
        elem_type=tensor.elem_type,
        shape=shape,
        is_sequence=is_sequence,
        index_bound=index_bound,
        map_key=map_key,
    )


def _index_bounds(graph: onnx.GraphProto) -> dict[str, int]:
    """Return, by integer input that (after casts) only indexes tensors, the least extent there."""
    table_shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for value in graph.input:
        dims = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(dim.dim_value > 0 for dim in dims):
            table_shapes.setdefault(value.name, tuple(dim.dim_value for dim in dims))
    alias = {value.name: value.name for value in graph.input}
    bounds: dict[str, int] = {}
    other_uses: set[str] = set()
    for node in graph.node:
        for position, name in enumerate(node.input):
            source = alias.get(name)
            if source is None:
                continue
            if node.op_type in ("Cast", "Identity"):
                alias[node.output[0]] = source
            elif node.op_type in _PLACES and position == 1 and node.input[0] in table_shapes:
                extent = _extent(node, table_shapes)
                if extent is not None:
                    bounds[source] = min(extent, bounds.get(source, extent))
            else:
                other_uses.add(source)
    return {name: bound for name, bound in bounds.items() if name not in other_uses}


def _extent(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> int | None:
    """Return the least extent of the axes that the second operand indexes; None if unknown."""
    shape, numbers = shapes[node.input[0]], {a.name: a.i for a in node.attribute}
    axis = numbers.get("axis", 0)
    if node.op_type in _ALONG_ONE_AXIS:
        return shape[axis] if -len(shape) <= axis < len(shape) else None
    first = numbers.get("batch_dims", 0)
    depth = shapes.get(node.input[1], (len(shape) - first,))[-1:]
    return min(shape[first : first + sum(depth)], default=None)


def symbolic_sizes(specs: Iterable[InputSpec], dims: Mapping[str, int]) -> dict[str, int]:
    """Return a size for each symbolic dim: the one in `dims`, or a small default.

    Raises:
        OptionError: `dims` names no symbolic dim of the inputs, or gives a negative size.
    """
    sizes: dict[str, int] = {}
    for spec in specs:
        for axis, dim in enumerate(spec.shape or ()):
            if isinstance(dim, str):
                sizes.setdefault(dim, assumed_size(dim, len(spec.shape or ()), axis))
    for name, size in dims.items():
        if name not in sizes:
            known = ", ".join(sorted(sizes)) or "none"
            raise OptionError(f"no input has a symbolic dim {name!r}; symbolic dims: {known}")
        if size < 0:
            raise OptionError(f"dim {name!r} cannot be {size}; give a size of 0 or more")
        sizes[name] = size
    return sizes


def sizes_for(specs: Iterable[InputSpec], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return those of ``sizes`` whose names are symbolic dims of the inputs."""
    symbols = {dim for spec in specs for dim in spec.shape or () if isinstance(dim, str)}
    return {name: size for name, size in sizes.items() if name in symbols}


def _concrete_shape(spec: InputSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
    if spec.shape is None:
        return (4,)
    shape = tuple(_size(dim, sizes) for dim in spec.shape)
    if math.prod(shape) > _MAX_ELEMENTS:
        raise ModelError(f"input {spec.name!r} of shape {shape} is too large; give smaller dims")
    return shape


def _size(dim: int | str | SymDim, sizes: Mapping[str, int]) -> int:
    if isinstance(dim, str):
        return sizes[dim]
    return max(0, evaluate_dim(dim, sizes))


def _draw(
    spec: InputSpec, shape: tuple[int, ...], generator: np.random.Generator
) -> npt.NDArray[Any]:
    element = spec.elem_type
    if (given := _generator(spec, shape)) is not None:
        return given.draw(shape, onnx.helper.tensor_dtype_to_np_dtype(element), generator)
    if element == TensorProto.STRING:
        return generator.choice(np.array(_WORDS, dtype=object), size=shape)
    if element == TensorProto.BOOL:
        return generator.integers(0, 2, size=shape).astype(np.bool_)
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
    except (KeyError, TypeError) as error:
        raise ModelError(f"input {spec.name!r} has no valid element type ({element})") from error
    if "INT" in _ELEMENT_TYPES[element]:
        if spec.choices:
            return np.full(shape, generator.choice(spec.choices), dtype)
        low, high = _integer_range(spec, dtype)
        return np.asarray(generator.integers(low, high, size=shape)).astype(dtype)
    if element in (TensorProto.COMPLEX64, TensorProto.COMPLEX128):
        real, imaginary = generator.standard_normal((2, *shape))
        return np.asarray(real + 1j * imaginary).astype(dtype)
    wide = np.float64 if element == TensorProto.DOUBLE else np.float32
    return np.asarray(generator.standard_normal(shape, dtype=wide)).astype(dtype)


def _generator(spec: InputSpec, shape: tuple[int, ...]) -> Generator | None:
    """Return the generator of an input: the user's, or one that its name suggests."""
    if spec.generator is not None:
        return spec.generator
    is_float = spec.elem_type in _FLOATS
    is_other = spec.elem_type not in (*_INDEX_TYPES, TensorProto.BOOL) and not is_float
    if is_other or spec.choices or spec.index_bound is not None or not spec.is_tensor:
        return None
    return suggested_generator(spec.name, shape, is_float=is_float)


def _draw_map(
    spec: InputSpec, shape: tuple[int, ...], generator: np.random.Generator
) -> dict[Any, Any]:
    """Draw a map from a few words or small numbers to scalars."""
    is_text = spec.map_key == TensorProto.STRING
    keys: Sequence[Any] = _WORDS if is_text else range(len(_WORDS))
    return {key: _draw(spec, shape, generator).item() for key in keys}


def integer_ends(spec: InputSpec) -> tuple[int, int] | None:
    """Return the least and greatest value that an integer or boolean input surely admits.

    ``None`` for an input of any other type.
    """
    if spec.generator is not None:
        return spec.generator.integer_ends
    if spec.elem_type == TensorProto.BOOL:
        return 0, 1
    if "INT" not in _ELEMENT_TYPES[spec.elem_type]:
        return None
    dtype = onnx.helper.tensor_dtype_to_np_dtype(spec.elem_type)
    low, high = _integer_range(spec, dtype)
    is_index = spec.index_bound is not None or spec.elem_type in _INDEX_TYPES
    if is_index or dtype.itemsize == 1:
        return low, high - 1
    bits = dtype.itemsize * 8
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if low < 0 else (0, 2**bits - 1)


def _integer_range(spec: InputSpec, dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the half-open range of the values to draw."""
    if spec.index_bound is not None:
        return 0, max(spec.index_bound, 1)
    if spec.elem_type in _INDEX_TYPES:
        return 0, _SAFE_INDEX_BOUND
    name = _ELEMENT_TYPES[spec.elem_type]
    bits = min(dtype.itemsize * 8, 8)
    if name.endswith(("4", "2")) and dtype.itemsize == 1:  # INT4, UINT4, INT2, UINT2
        bits = int(name[-1])
    return (0, 2**bits) if name.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1))
