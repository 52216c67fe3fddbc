"""Sizes of symbolic dimensions: those that a user gives, and assumptions for all others.

Prices, the check and the race all use the same sizes, so that the predicted graph is the one that
is run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, combinations, product

from eqsat_opt.errors import OptionError
from eqsat_opt.ir.graph.graph import OPAQUE, Graph, sized
from eqsat_opt.ir.graph.plain_names import axis_name, plain_sizes
from eqsat_opt.ir.ops import IllTyped, get_op
from eqsat_opt.ir.sizes.equations import Equation, equations, solved
from eqsat_opt.ir.sizes.fitting import fitted
from eqsat_opt.ir.sizes.given_values import assumed_value, is_of_value
from eqsat_opt.ir.sizes.interface import renamed_sizes
from eqsat_opt.ir.values.dim_names import read_name
from eqsat_opt.ir.values.dims import (
    Dim,
    SymDim,
    dim_names,
    evaluate_dim,
    plain_symbol,
    substituted,
    sym,
)
from eqsat_opt.ir.values.types import TensorType

__all__ = ["Sizes", "assumed_size", "other_sizes", "size_sets"]

_SCALES = (1, 2, 4, 8, 16, 32)
"""Factors of the plain assumptions: up to images of 1024 by 1024."""

_BATCH = 2
_IMAGE = 32
_OTHER = 16

_BATCHES = re.compile(r"batch|^(n|b|bs|bsz)$", re.IGNORECASE)
_SEQUENCES = re.compile(
    r"seq|past|cache|token|length|\blen|_len|time|frames?|steps?|samples", re.IGNORECASE
)
_IMAGES = re.compile(r"height|width|^(h|w)_?$", re.IGNORECASE)
_TOTALS = re.compile(r"total|mask|kv_?len|all_", re.IGNORECASE)
"""Patterns of names that indicate the kind of a size; for other names, rank and axis decide."""


@dataclass(frozen=True)
class Sizes:
    """A size for every symbolic dimension.

    Attributes:
        given: sizes that the user gave.
        assumed: sizes of the inputs that the user did not give.
        data: sizes that the data decide (how many elements are not zero, say); assumed for prices,
            and used for nothing else.
        derived: assumed sizes that follow from others, as the model demands.
    """

    given: Mapping[str, int] = field(default_factory=dict)
    assumed: Mapping[str, int] = field(default_factory=dict)
    data: Mapping[str, int] = field(default_factory=dict)
    derived: Mapping[str, Dim] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph, given: Mapping[str, int]) -> Sizes:
        """Return the given sizes, with assumptions for all other symbols of ``graph``.

        An image that vanishes in a network's strides does more than fail: some kernels of
        onnxruntime divide by its size and end the process. So small sizes grow until every tensor
        has elements and every operator is defined; batches do not grow. Sizes that the model
        demands to be equal are equal.
        """
        plain, batches = _plain_sizes(graph)
        types = (type_ for type_ in graph.types.values() if isinstance(type_, TensorType))
        inner = {name for type_ in types for dim in type_.shape for name in dim_names(dim)}
        inner |= {name for dim in _attribute_dims(graph) for name in dim_names(dim)}
        # An equation that could be solved for either of two names is solved for the name of a
        # total.
        order = sorted(plain.keys() - given.keys(), key=lambda n: (not _TOTALS.search(n), n))
        renamed = renamed_sizes(graph)
        wanted = chain(
            (Equation(sym(name), dim, "input", is_strict=True) for name, dim in renamed.items()),
            equations(graph),
        )
        first = [name for name in renamed if name not in given]
        follows = solved(wanted, order, [*first, *sorted(inner - plain.keys())])
        free = sorted((plain.keys() | inner) - given.keys() - follows.keys())
        growing = [name for name in free if name not in batches and not is_of_value(name)]
        smallest = {
            name: assumed_value(name) if is_of_value(name) else plain.get(name, _OTHER)
            for name in free
        }
        unnamed = [name for name in free if name in batches and not _BATCHES.search(name)]
        complete = partial(_completed, follows)
        trials = _trials(graph, {**smallest, **given}, growing, unnamed, complete=complete)
        sizes = next(
            (whole for whole in trials if _is_defined(graph, whole)),
            complete({**smallest, **given}),
        )
        own = {name: size for name, size in sizes.items() if name not in given}
        return cls(
            dict(given),
            {name: size for name, size in own.items() if name in plain},
            {name: size for name, size in own.items() if name not in plain},
            {
                name: size
                for name, size in follows.items()
                if (
                    name in plain
                    and isinstance(size, SymDim)
                    and plain.keys() >= {*dim_names(size)}
                )
                or name in renamed
            },
        )

    @property
    def independent(self) -> tuple[str, ...]:
        """Names of assumed sizes, other than batch sizes, that do not follow from other sizes."""
        own = self.assumed.keys() - self.derived.keys()
        return tuple(name for name in self.unbatched if name in own)

    @property
    def unbatched(self) -> tuple[str, ...]:
        """Names of the sizes of the inputs, without batch sizes."""
        return tuple(name for name in self.inputs if not _BATCHES.search(name))

    @property
    def inputs(self) -> dict[str, int]:
        """Size by symbol, for the symbols of the inputs."""
        return {**self.assumed, **self.given}

    @property
    def all(self) -> dict[str, int]:
        """Size by symbol, for all symbols."""
        return {**self.data, **self.assumed, **self.given}

    def to_json(self) -> dict[str, dict[str, int]]:
        """Return the sizes as JSON values; an axis without a name is called ``VALUE.AXIS``."""
        kinds = {"given": self.given, "assumed": self.assumed, "data": self.data}
        return {
            kind: {axis_name(name): size for name, size in sizes.items()}
            for kind, sizes in kinds.items()
        }


def _completed(follows: Mapping[str, SymDim | int], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the sizes together with those derived from them; a negative one becomes 0."""
    return {**sizes, **{name: max(0, evaluate_dim(dim, sizes)) for name, dim in follows.items()}}


def _trials(
    graph: Graph,
    smallest: Mapping[str, int],
    growing: Sequence[str],
    unnamed: Sequence[str],
    *,
    complete: Callable[[Mapping[str, int]], dict[str, int]],
) -> Iterator[dict[str, int]]:
    """Yield sizes that grow, at last those that fit what the graph demands, for all names.

    Args:
        graph: the graph.
        smallest: sizes of all names that do not follow from others.
        growing: names of sizes that may grow.
        unnamed: batches that only their axis shows: if nothing else helps, these grow too.
        complete: adds the sizes that follow from others.
    """
    grown = [
        {**smallest, **{name: smallest[name] * scale for name in names}}
        for names in filter(None, (growing, [*growing, *unnamed] if unnamed else []))
        for scale in _SCALES
    ]
    yield from map(complete, grown)
    own = [name for name in (*growing, *unnamed) if not name.startswith("?")]
    for sizes in grown if own else ():
        yield fitted(graph, sizes, own, complete)


def other_sizes(sizes: Sizes) -> Iterator[Sizes]:
    """Yield further assumptions, for a model that cannot run at ``sizes``.

    The demands of a computed shape on sizes are not known. In most models it demands that some
    sizes are equal, that one is the sum of two others, or that all are 1.
    """
    own = [name for name in sizes.assumed if name not in sizes.derived]
    tried = [dict(sizes.assumed)]

    def variant(changes: Mapping[str, int], derived: Mapping[str, Dim]) -> Iterator[Sizes]:
        assumed = {**sizes.assumed, **changes}
        follows = {**sizes.derived, **derived}
        assumed.update(
            {
                name: max(0, evaluate_dim(dim, {**assumed, **sizes.given}))
                for name, dim in follows.items()
            }
        )
        if assumed not in tried:
            tried.append(assumed)
            yield replace(sizes, assumed=assumed, derived=follows)

    rest = [name for name in own if not _BATCHES.search(name)]
    # A name without a meaning is rather a total than one that names a part.
    totals = sorted(
        rest, key=lambda name: (not _TOTALS.search(name), bool(_SEQUENCES.search(name)), name)
    )
    parts = sorted({*rest, *sizes.given}, key=lambda name: (not _SEQUENCES.search(name), name))
    sums = [
        (total, left, right)
        for total in totals[:_MOST_SUMS]
        for left, right in combinations(parts[:_MOST_SUMS], 2)
        if total not in (left, right)
    ]
    for total, left, right in sums[:1]:
        yield from variant({}, {total: _sum(left, right)})
    yield from variant(dict.fromkeys(rest, _OTHER), {})
    for total, left, right in sums[1:]:
        yield from variant({}, {total: _sum(left, right)})
    for total, other in product(sizes.given, parts[:_MOST_SUMS]):
        for part in rest[:_MOST_SUMS]:
            remainder = sizes.given[total] - sizes.inputs[other]
            if remainder >= 0 and len({total, other, part}) == 3:
                yield from variant({part: remainder}, {})
    yield from variant(dict.fromkeys(rest, 1), {})
    yield from variant(dict.fromkeys(rest, 2 * _IMAGE), {})
    yield from variant(dict.fromkeys(rest, _TRAINED), {})
    yield from variant(dict.fromkeys(own, 1), {})


_TRAINED = 224
"""A multiple of the patches and strides of most image models, which are trained at this size."""

_MOST_SUMS = 4
"""Names that are tried as a sum or as a part of one."""


def _sum(left: str, right: str) -> SymDim:
    total = sym(left) + sym(right)
    assert isinstance(total, SymDim)
    return total


def assumed_size(name: str, rank: int, axis: int) -> int:
    """Return a plain size for a symbolic axis of an input, by its name, else by rank and axis."""
    if _BATCHES.search(name):
        return _BATCH
    if _SEQUENCES.search(name):
        return _OTHER
    if _IMAGES.search(name):
        return _IMAGE
    if axis == 0 and rank > 1:
        return _BATCH
    # An image smaller than this vanishes in the strides of usual networks.
    return _IMAGE if rank >= 4 and axis >= 2 else _OTHER


def size_sets(
    graph: Graph, given: Sequence[Mapping[str, tuple[int, ...] | int]]
) -> tuple[Sizes, ...]:
    """Return the sizes for each set that is given, and one set of assumptions if none is.

    Raises:
        OptionError: a name is unknown, or a shape does not fit its input.
    """
    sets = [_symbol_sizes_of(graph, one) for one in given] or [{}]
    return tuple(Sizes.of(graph, one) for one in sets)


def _plain_sizes(graph: Graph) -> tuple[dict[str, int], set[str]]:
    """Return a plain size for every symbol of the inputs, and the symbols that are batch sizes."""
    plain: dict[str, int] = dict.fromkeys(renamed_sizes(graph), _OTHER)
    batches: set[str] = set()
    for name in graph.inputs:
        type_ = graph.tensor_type(name)
        for axis, dim in enumerate(type_.shape if type_ is not None else ()):
            for symbol in dim_names(dim):
                rank = len(type_.shape) if type_ is not None else 0
                size = assumed_size(symbol, rank, _image_axis(type_, axis))
                plain[symbol] = min(size, plain.get(symbol, size))
                if size == _BATCH:
                    batches.add(symbol)
    return plain, batches


def _image_axis(type_: TensorType | None, axis: int) -> int:
    """Return where an axis is if channels come second; few of them may come last."""
    if type_ is None or type_.rank < 4 or isinstance(type_.shape[1], int) or axis == 0:
        return axis
    return axis + 1 if type_.shape[-1] in range(1, 5) else axis


def _is_defined(graph: Graph, sizes: Mapping[str, int]) -> bool:
    """Return whether every tensor has elements and every operator is defined at these sizes."""
    return all(
        all(evaluate_dim(dim, sizes) > 0 for dim in type_.shape if isinstance(dim, SymDim))
        for type_ in graph.types.values()
        if isinstance(type_, TensorType)
    ) and all(_accepts(graph, number, sizes) for number in range(len(graph.nodes)))


def _attribute_dims(graph: Graph) -> Iterator[SymDim]:
    """Yield the sizes in attributes of operators, some of which are in no type."""
    for node in graph.nodes:
        for _, value in node.attrs:
            for one in value if isinstance(value, tuple) else (value,):
                if isinstance(one, SymDim):
                    yield one


def _accepts(graph: Graph, number: int, sizes: Mapping[str, int]) -> bool:
    node = graph.nodes[number]
    types = [graph.tensor_type(name) for name in node.inputs]
    if node.op == OPAQUE or not all(types):
        return True
    literal = [_at(type_, sizes) for type_ in types if type_ is not None]
    try:
        found = get_op(node.op).type_fn(literal, dict(sized(node.attrs, sizes)))
    except IllTyped:
        return False
    known = graph.tensor_type(node.output)
    # A later operator may demand of this result what no type says here.
    return known is None or found.shape == _at(known, sizes).shape


def _at(type_: TensorType, sizes: Mapping[str, int]) -> TensorType:
    return TensorType(type_.dtype, tuple(evaluate_dim(dim, sizes) for dim in type_.shape))


def _symbol_sizes_of(graph: Graph, given: Mapping[str, tuple[int, ...] | int]) -> dict[str, int]:
    """Return the size of each symbol that a set of given sizes determines.

    Raises:
        OptionError: a name is unknown, or a shape does not fit its input.
    """
    types = [
        type_ for type_ in (graph.tensor_type(name) for name in graph.inputs) if type_ is not None
    ]
    dims = {dim for type_ in types for dim in type_.shape if isinstance(dim, SymDim)}
    symbols = {name for dim in dims for name in dim_names(dim)} | renamed_sizes(graph).keys()
    sizes: dict[str, int] = {}
    formulas: dict[SymDim, int] = {}
    for name, value in given.items():
        name = f"?{name}" if f"?{name}" in symbols else name
        read = read_name(name, symbols)
        if isinstance(value, tuple):
            _note_sizes_of_input(graph, name, value, sizes=sizes, formulas=formulas)
        elif name in symbols:
            sizes[name] = value
        elif name in graph.inputs:
            _note_sizes_of_input(graph, name, (value,), sizes=sizes, formulas=formulas)
        elif read in dims and isinstance(read, SymDim):
            formulas[read] = value
        else:
            known = ", ".join(sorted(map(axis_name, symbols))) or "none"
            raise OptionError(
                f"no input of the model has a symbolic dimension {name!r}; there are: {known}"
            )
    for formula, size in formulas.items():
        _require_formula(formula, size, sizes)
    return sizes


def _require_formula(formula: SymDim, size: int, sizes: dict[str, int]) -> None:
    """Check the size of a formula; if one of its names has no size, derive that size from it.

    Raises:
        OptionError: the sizes contradict each other.
    """
    text = plain_sizes(str(formula))
    missing = [name for name in dict.fromkeys(dim_names(formula)) if name not in sizes]
    if len(missing) == 1:
        wanted = Equation(substituted(formula, sizes), size, "", is_strict=True)
        found = solved([wanted], missing).get(missing[0])
        if isinstance(found, int) and found >= 0:
            sizes[missing[0]] = found
            missing = []
    if missing:
        raise OptionError(
            f"the dimension {text} follows from others; give sizes of "
            f"{', '.join(map(axis_name, missing))} "
            "instead"
        )
    if evaluate_dim(formula, sizes) != size:
        others = ", ".join(
            f"{axis_name(name)}={sizes[name]}" for name in dict.fromkeys(dim_names(formula))
        )
        raise OptionError(
            f"the dimension {text} is {evaluate_dim(formula, sizes)} where {others}, "
            f"not {size}; give sizes that belong together"
        )


def _note_sizes_of_input(
    graph: Graph,
    name: str,
    shape: tuple[int, ...],
    *,
    sizes: dict[str, int],
    formulas: dict[SymDim, int],
) -> None:
    """Note the size of each symbol of an input, and of each formula in its shape."""
    if name not in graph.inputs:
        raise OptionError(
            f"the model has no input {name!r}; its inputs are {', '.join(graph.inputs)}"
        )
    type_ = graph.tensor_type(name)
    fits = type_ is not None and type_.rank == len(shape)
    for dim, size in zip(type_.shape, shape, strict=True) if type_ is not None and fits else ():
        symbol = plain_symbol(dim)
        fits = fits and (isinstance(dim, SymDim) or dim == size)
        if symbol is not None:
            sizes[symbol] = size
        elif isinstance(dim, SymDim):
            formulas[dim] = size
    if not fits:
        raise OptionError(
            f"input {name!r} is {plain_sizes(str(graph.types[name]))}, which does not fit the "
            f"shape {list(shape)}"
        )
