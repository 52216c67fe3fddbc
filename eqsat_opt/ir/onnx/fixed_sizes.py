"""Literal sizes in a model's interface, so that values derived from them can be folded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx_ir

from eqsat_opt.errors import OptionError
from eqsat_opt.ir.values.dim_names import UNNAMED, plain_names, read_name
from eqsat_opt.ir.values.dims import dim_names, substituted

__all__ = ["fixed_model"]


def fixed_model(model: onnx_ir.Model, fixed: Mapping[str, int | tuple[int, ...]]) -> onnx_ir.Model:
    """Return the model with literal sizes in place of symbolic ones; the given model is unchanged.

    Args:
        model: the model as it was loaded.
        fixed: symbolic dimension to size, an axis without a name, such as ``x.0``, to size, or
            input to shape.

    Raises:
        OptionError: a name is unknown, a shape does not fit its input, or a size is given twice.
    """
    result = model.clone()
    sizes: dict[str, int] = {}
    inputs = {value.name: value for value in result.graph.inputs}
    declared = [dim for value in result.graph.inputs for dim in value.shape or ()]
    plain = plain_names(dim.value or "" for dim in declared if not isinstance(dim, int))

    def note(name: str, size: int) -> None:
        if sizes.setdefault(name, size) != size:
            raise OptionError(
                f"the dimension {name!r} is fixed at both {sizes[name]} and {size}; give one size"
            )

    unnamed = dict(_unnamed_axes(result.graph.inputs))
    for name, wanted in fixed.items():
        if name in unnamed and isinstance(wanted, int):
            value, axis = unnamed[name]
            assert value.shape is not None
            value.shape = onnx_ir.Shape([*value.shape[:axis], wanted, *value.shape[axis + 1 :]])
        elif name in plain and isinstance(wanted, int):
            note(name, wanted)
        elif name in inputs:
            shape = (wanted,) if isinstance(wanted, int) else wanted
            for symbol, size in _fixed_input(inputs[name], shape):
                if symbol in plain:
                    note(symbol, size)
        else:
            known = ", ".join(sorted([*plain, *unnamed])) or "none"
            raise OptionError(
                f"no input of the model has a symbolic dimension {name!r}, nor is it an input; "
                f"there are: {known}"
            )
    for value in _values(result.graph):
        if value.shape is not None:
            value.shape = onnx_ir.Shape([_fixed(dim, sizes, plain) for dim in value.shape])
    return result


def _values(graph: onnx_ir.Graph) -> Iterator[onnx_ir.Value]:
    """Yield the values of a graph that declare a shape."""
    yield from (*graph.inputs, *graph.outputs)
    for node in graph:
        yield from node.outputs


def _unnamed_axes(
    inputs: Iterable[onnx_ir.Value],
) -> Iterator[tuple[str, tuple[onnx_ir.Value, int]]]:
    """Yield the axes of inputs whose sizes have no name, as reports call them."""
    for value in inputs:
        for axis, dim in enumerate(value.shape or ()):
            if (dim < 0) if isinstance(dim, int) else (dim.value or "") in UNNAMED:
                yield f"{value.name}.{axis}", (value, axis)


def _fixed_input(value: onnx_ir.Value, shape: tuple[int, ...]) -> Iterator[tuple[str, int]]:
    """Fix the dimensions of an input that have no name; yield the others with their sizes.

    Raises:
        OptionError: the shape does not fit.
    """
    declared = value.shape
    if declared is None or len(declared) != len(shape):
        raise OptionError(
            f"input {value.name!r} is {declared}, which does not fit the shape {list(shape)}"
        )
    dims: list[int | onnx_ir.SymbolicDim] = []
    for dim, size in zip(declared, shape, strict=True):
        if isinstance(dim, int) and dim >= 0 and dim != size:
            raise OptionError(
                f"input {value.name!r} is {declared}, which does not fit the shape {list(shape)}"
            )
        is_named = not isinstance(dim, int) and (dim.value or "") not in UNNAMED
        dims.append(dim if is_named else size)
        if not isinstance(dim, int) and is_named:
            yield str(dim.value), size
    value.shape = onnx_ir.Shape(dims)


def _fixed(
    dim: int | onnx_ir.SymbolicDim, sizes: Mapping[str, int], plain: frozenset[str]
) -> int | onnx_ir.SymbolicDim:
    """Substitute the fixed sizes in a dimension.

    The result is a literal if its size, or every size in its formula, is fixed; otherwise a partly
    fixed formula becomes a formula of the other sizes.
    """
    if isinstance(dim, int) or (dim.value or "") in UNNAMED:
        return dim
    read = read_name(dim.value or "", plain)
    if sizes.keys().isdisjoint(dim_names(read)):
        return dim
    rest = substituted(read, sizes)
    return max(0, rest) if isinstance(rest, int) else onnx_ir.SymbolicDim(str(rest))
