"""The registry means what ONNX means, on a generated grid of configurations.

Each goes through the import (or the export, for what ONNX has under no name of its own), is
evaluated by the definitions that rules are verified on, and compared with onnx.reference and
onnxruntime. ``-s`` prints how many there are.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import pytest

from eqsat_opt.errors import ModelError
from eqsat_opt.ir.graph.graph import OPAQUE
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.onnx.mappings import linear
from eqsat_opt.ir.ops import OPS, Array, AttrMap
from eqsat_opt.ir.ops.domains import FLOAT
from tests.conformance.operator_grid.configuration import Configuration, Exported, Imported
from tests.conformance.operator_grid.excuses import EXCUSES, SEEN_IN, Excuse, excuses
from tests.conformance.operator_grid.generation import (
    Values,
    configurations,
    covering,
    generated_ops,
)
from tests.conformance.operator_grid.indexing import compared, index_difference
from tests.conformance.operator_grid.judging import (
    PARTS,
    PEERS,
    comparable,
    difference,
    faults,
    judge,
    verdicts,
)
from tests.sampling import sampled

ENOUGH = 1_000
SAMPLE = 6
"""Configurations of a part that are written back too."""
every_part = pytest.mark.parametrize("part", sampled(range(PARTS), PARTS))
"""The first part of the configurations of an operator; with ``--slow``, all."""


def test_every_operator_has_a_generator() -> None:
    assert set(generated_ops()) == set(OPS)


@every_part
@pytest.mark.parametrize("op", sorted(OPS))
def test_operator_agrees(op: str, part: int) -> None:
    against = [fault for found in verdicts(op, part) for fault in faults(found)]
    assert not against, "\n".join([f"{len(against)} faults", *against[:20]])


STRUCTURED = sorted(n for n, op in OPS.items() if op.index_fn and op.kind != "pointwise")


@pytest.mark.parametrize("op", STRUCTURED)
def test_the_index_function_agrees(op: str) -> None:
    """At configurations of the grid; what ONNX lacks is compared in test_index_semantics."""
    nodes = compared(op)
    assert nodes or OPS[op].doc
    assert not list(filter(None, (index_difference(*one) for one in nodes)))


def test_a_wrong_index_function_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(OPS["ReduceSum"], index_fn=OPS["ReduceMax"].index_fn)
    monkeypatch.setitem(OPS, "ReduceSum", wrong)
    assert any(index_difference(*one) for one in compared("ReduceSum"))


@every_part
@pytest.mark.parametrize("op", sorted(OPS))
def test_what_is_written_back_agrees(op: str, part: int) -> None:
    """A sample of the imported graphs, exported to the operator set that they came from."""
    runs = [
        verdict.configuration
        for verdict in itertools.chain(*verdicts(op, part))
        if verdict.peer == "onnxruntime" and verdict.outcome == "agrees"
    ]
    for configuration in runs[:: -(-len(runs) // SAMPLE) or 1]:
        if isinstance(configuration, Imported):
            model = configuration.model()
            written = model_proto(export_model(import_model(load_model(model))))
            theirs = PEERS["onnxruntime"](written, configuration.feeds)
            detail = difference(configuration.ours(model), theirs)
            assert not detail, f"{configuration.label} written back: {detail}"


def test_the_grid_is_large() -> None:
    """Every operator is compared with somebody, and most configurations with both."""
    total: Counter[str] = Counter()
    lines = []
    for op in sorted(OPS):
        agreeing = [{v.peer for v in found if v.outcome == "agrees"} for found in verdicts(op)]
        counts = Counter({peer: sum(peer in peers for peers in agreeing) for peer in PEERS})
        counts["both"] = sum(len(peers) == len(PEERS) for peers in agreeing)
        counts["compared"] = sum(bool(peers) for peers in agreeing)
        counts["left out"] = len(configurations(op)) - len(comparable(op))  # of all parts
        assert counts["compared"] > 0, f"{op} is compared with nobody"
        total += counts
        lines.append(f"{op:24}" + "".join(f"{counts[name]:16}" for name in _COLUMNS))
    lines.append(f"{'total':24}" + "".join(f"{total[name]:16}" for name in _COLUMNS))
    print("\n" + " " * 24 + "".join(f"{name:>16}" for name in _COLUMNS), *lines, sep="\n")
    assert total["compared"] >= ENOUGH
    assert total["both"] >= 0.8 * total["compared"]


_COLUMNS = ("compared", "both", *PEERS, "left out")


@cache
def excused() -> Mapping[Excuse, Sequence[Configuration]]:
    """The comparable configurations that each excuse is about."""
    found: dict[Excuse, list[Configuration]] = {}
    for configuration in itertools.chain.from_iterable(map(comparable, generated_ops())):
        for excuse in itertools.chain(*(excuses(configuration, peer) for peer in PEERS)):
            found.setdefault(excuse, []).append(configuration)
    return found


def is_needed(excuse: Excuse) -> bool:
    """Whether some verdict would be a fault without the excuse."""
    return any(
        verdict.peer == excuse.peer and verdict.outcome != "agrees"
        for configuration in excused().get(excuse, ())
        for verdict in judge(configuration)
    )


@pytest.mark.parametrize("excuse", EXCUSES, ids=str)
def test_excuse_is_needed(excuse: Excuse) -> None:
    """If not, a newer release has mended what it is about: remove it."""
    installed = {name: version(name) for name in SEEN_IN}
    others = [name for name, seen in SEEN_IN.items() if not installed[name].startswith(f"{seen}.")]
    if others:
        pytest.skip(f"the excuses are those of {SEEN_IN}, installed are {installed}")
    assert is_needed(excuse)


def _spelled(op: str, attribute: str) -> set[Any]:
    """How the compared models spell an attribute; ``None`` where they leave it out."""
    return {c.attrs.get(attribute) for c in comparable(op) if isinstance(c, Imported)}


def test_the_grid_covers_what_operators_offer() -> None:
    pads = {None, "VALID", "SAME_UPPER", "SAME_LOWER"}
    assert _spelled("Conv", "auto_pad") == pads | {"NOTSET"}
    assert _spelled("MaxPool", "auto_pad") == _spelled("AveragePool", "auto_pad") == pads
    assert _spelled("Conv", "group") >= {None, 1, 2, 3, 4}
    assert _spelled("ConvTranspose", "group") == {None, 1, 2, 4}
    assert _spelled("AveragePool", "count_include_pad") == {None, 0, 1}
    for op in ("Conv", "ConvTranspose", "AveragePool", "MaxPool"):
        assert _spelled(op, "strides") >= {None, (1,), (2, 2), (3, 3)}
        assert _spelled(op, "dilations") >= {None, (2,), (2, 2)}
        assert any(p and p[: len(p) // 2] != p[len(p) // 2 :] for p in _spelled(op, "pads"))
    for op in ("AveragePool", "MaxPool"):
        assert _spelled(op, "ceil_mode") == {None, 0, 1}
    for name in ("transA", "transB"):
        assert _spelled("MatMul", name) == {None, 0, 1}
    shapes = [[a.shape for a in c.feeds.values()] for c in comparable("Add")]
    assert {len(shape) for pair in shapes for shape in pair} >= {0, 1, 2, 3, 4}
    assert any(1 in left and 1 in right and left != right for left, right, *_ in shapes)
    reduced = [c for c in comparable("ReduceSum") if isinstance(c, Imported)]
    assert {len(c.operands) for c in reduced} == {1, 2}  # axes as attribute and as input
    assert any(min(c.attrs.get("axes", (0,))) < 0 for c in reduced)
    for op in ("Conv", "Add", "Softmax", "ReduceSum", "Slice", "Pad", "Clip"):
        assert len({c.opset for c in comparable(op)}) >= 3


# What the grid is for: it finds what is wrong -----------------------------------------------------

EvalFn = Callable[[Sequence[Array], AttrMap], Array]


def _original(op: str, operands: Sequence[Array], **attrs: Any) -> Array:
    return np.asarray(DEFINED[op](FLOAT, operands, attrs))


DEFINED = {name: op.eval_fn for name, op in OPS.items()}


def _other_rounding(x: Array) -> Array:
    return np.asarray(np.sign(x) * np.floor(np.abs(x) + 0.5)).astype(x.dtype)


def _counts_beyond_the_padding(x: Sequence[Array], attrs: AttrMap) -> Array:
    right = _original("AveragePool", x, **attrs)
    if not attrs["ceil"] or not attrs["count_include_pad"]:
        return right
    axes = len(attrs["strides"])
    after = [p + s - 1 for p, s in zip(attrs["pads"][axes:], attrs["strides"], strict=True)]
    wide = {**attrs, "pads": (*attrs["pads"][:axes], *after), "ceil": 0}
    return _original("AveragePool", x, **wide)[tuple(slice(n) for n in right.shape)]


MUTANTS: dict[str, tuple[str, EvalFn]] = {
    "padding counts where it should not": (
        "AveragePool", lambda x, a: _original("AveragePool", x, **{**a, "count_include_pad": 1}),
    ),
    "padding never counts": (
        "AveragePool", lambda x, a: _original("AveragePool", x, **{**a, "count_include_pad": 0}),
    ),
    "what ceil mode adds counts": ("AveragePool", _counts_beyond_the_padding),
    "the kernel is flipped": (
        "Conv", lambda x, a: _original("Conv", [x[0], x[1][..., ::-1], *x[2:]], **a),
    ),
    "groups are exchanged": (
        "Conv",
        lambda x, a: _original("Conv", [np.roll(x[0], x[1].shape[1], axis=1), *x[1:]], **a),
    ),
    "the bias is forgotten": ("Conv", lambda x, a: _original("Conv", x[:2], **a)),
    "the other end is padded": (
        "ConvTranspose",
        lambda x, a: _original(
            "ConvTranspose", x,
            **{**a, "pads": (*a["pads"][len(a["pads"]) // 2 :], *a["pads"][: len(a["pads"]) // 2])},
        ),
    ),
    "ties round away from 0": ("Round", lambda x, a: _other_rounding(x[0])),
    "integers divide towards minus infinity": (
        "Div",
        lambda x, a: x[0] // x[1] if x[0].dtype.kind == "i" else _original("Div", x),
    ),
    "the slope is on the other side": ("PRelu", lambda x, a: np.where(x[0] > 0, x[1] * x[0], x[0])),
    "the least number beats no number": ("Min", lambda x, a: np.fmin(*x)),
    "negation of the opposite comparison": ("GreaterOrEqual", lambda x, a: ~np.less(*x)),
    "the power has the exponent's type": ("Pow", lambda x, a: np.power(*x)),
    "casts round": (
        "Cast",
        lambda x, a: _original("Cast", [np.rint(x[0]) if x[0].dtype.kind == "f" else x[0]], **a),
    ),
    "an even window reaches further back": (
        "LRN", lambda x, a: _original("LRN", [x[0][:, ::-1]], **a)[:, ::-1],
    ),
    "epsilon is outside the root": (
        "BatchNormalization",
        lambda x, a: _original(
            "BatchNormalization",
            [*x[:4], (np.sqrt(x[4]) + a["epsilon"]) ** 2 - a["epsilon"]], **a,
        ),
    ),
    "the fill value is lost": ("Pad", lambda x, a: _original("Pad", x, **{**a, "value": 0.0})),
    "indices clip": ("Gather", lambda x, a: np.take(x[0], x[1], axis=a["axis"], mode="clip")),
    "the axis is the last": ("Softmax", lambda x, a: _original("Softmax", x, axis=x[0].ndim - 1)),
    "the mean is a sum": ("ReduceMean", lambda x, a: _original("ReduceSum", x, **a)),
    "the centre is a corner": (
        "IdentityKernel",
        lambda x, a: np.roll(_original("IdentityKernel", x, **a), 1, axis=3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_wrong_definition_is_found(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op, evaluate = MUTANTS[mutant]
    wrong = replace(OPS[op], eval_fn=lambda _domain, operands, attrs: evaluate(operands, attrs))
    monkeypatch.setitem(OPS, op, wrong)
    found = itertools.chain.from_iterable(faults(judge(c)) for c in comparable(op))
    # Not because the mutant crashes: its values differ, or its type is not the declared one.
    assert any(" differs: " in fault or " is no " in fault for fault in found)


def test_a_wrong_import_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """SAME_LOWER pads before and not after."""
    resolve = linear.resolve_pads

    def swapped(call: Any, *args: Any) -> tuple[int, ...]:
        pads = resolve(call, *args)
        half = len(pads) // 2
        return (*pads[half:], *pads[:half]) if call.get("auto_pad", "") == "SAME_LOWER" else pads

    monkeypatch.setattr(linear, "resolve_pads", swapped)
    assert any(faults(judge(configuration)) for configuration in comparable("Conv"))


# What the grid found ------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_a_pool_narrower_than_its_stride_stays_opaque(op: str, mode: str) -> None:
    """SAME would pad by less than nothing: runtimes refuse, crop, or read something else."""
    attrs = {"kernel_shape": (1,), "strides": (3,), "auto_pad": mode}
    node = Imported(op, op, [Values(op)(1, 1, 8)], attrs, 13)
    (found,) = import_model(load_model(node.model())).nodes
    assert found.op == OPAQUE


@pytest.mark.skipif("Attention" not in OPS, reason="the registry has no attention")
@pytest.mark.parametrize(("mask", "scale"), [((2, 4, 3, 1), 0.5), ((3, 5), -1.0), ((3, 5), 0.0)])
def test_attention_that_onnx_means_otherwise_stays_opaque(
    mask: tuple[int, ...], scale: float
) -> None:
    """A mask that is too short is filled up with minus infinity; the scale is taken a root of."""
    values = Values("Attention")
    operands = [values(2, 4, 3, 8), values(2, 4, 5, 8), values(2, 4, 5, 8), values(*mask)]
    node = Imported("MaskedAttention", "Attention", operands, {"scale": scale}, 24)
    (found,) = import_model(load_model(node.model())).nodes
    assert found.op == OPAQUE


@pytest.mark.parametrize("opset", [7, 9, 10])
def test_floats_are_not_compared_with_equal_before_it_takes_them(opset: int) -> None:
    x = np.ones(3, np.float32)
    with pytest.raises(ModelError, match="GreaterOrEqual cannot be written in operator set"):
        Exported("GreaterOrEqual", [x, x], {}, opset).model()


# The covering arrays ------------------------------------------------------------------------------


def _joint(rows: Sequence[dict[str, Any]], strength: int) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        yield from itertools.combinations(sorted(row.items()), strength)


@pytest.mark.parametrize("strength", [1, 2, 3])
def test_covering_arrays_cover(strength: int) -> None:
    choices = {"a": range(4), "b": range(3), "c": range(3), "d": range(2)}
    every = [
        dict(zip(choices, values, strict=True))
        for values in itertools.product(*choices.values())
        if values[0] != values[1]
    ]
    rows = covering(strength, lambda row: row["a"] != row["b"], **choices)
    assert set(_joint(rows, strength)) == set(_joint(every, strength))
    assert all(row["a"] != row["b"] for row in rows)
    assert len(rows) < len(every)
