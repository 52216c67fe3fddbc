"""Normalizations and products of our own against float64, with each set of instructions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.native.library import library_path, missing
from eqsat_opt.runtime.backends.native.normalizations import normalizations
from eqsat_opt.runtime.backends.native.products import HALVED, PRODUCT, products
from eqsat_opt.runtime.backends.native.sites import Site, with_names, with_ways
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from tests.oracles.native import (
    NUMBERS,
    activated,
    normalization_model,
    normalized,
    opened,
    product_model,
    unaligned,
)

if missing():
    pytest.skip(missing(), allow_module_level=True)

CASES = 75
CASES_SLOW = 500
NORMALIZATION_BOUND = 1e-6
"""Of one deviation and the value itself, times the scale; and of the shift."""

PRODUCT_BOUND = 1e-6
"""Of the sum of the sizes of what is added up: 16 roundings, where a long sum may need more but
has errors of both signs. Where products are of sums of halves, of the largest such sum: errors of
one place reach others."""


# ** normalizations **


def draw_normalization(rng: np.random.Generator) -> dict[str, Any]:
    size = int(rng.choice([2, 3, 15, 16, 17, 63, 64, 65, 100, 768, 1023, 4096, 4099, 9001]))
    rank = int(rng.integers(0, 4))
    return {
        "shape": (*(int(v) for v in rng.integers(1, 5 if size > 1000 else 9, rank)), size),
        "is_centred": bool(rng.integers(2)),
        "epsilon": float(rng.choice([1e-5, 1e-12, 0.0])),
        "offset": float(rng.choice([0, 0, 1, 1e3, 1e6])),
        "size": float(rng.choice([1, 1, 1e-3, 1e4, 1e-25, 1e25, 1e-42])),
        "skip": rng.choice(["", "same", "rows", "ones"]),
        "has": {name: bool(rng.integers(2)) for name in ("shift", "bias", "sum")},
        "threads": int(rng.choice([1, 1, 2])),
    }


def normalization_error(case: dict[str, Any], library: str, rng: np.random.Generator) -> float:
    """Largest error relative to what `NORMALIZATION_BOUND` is relative to."""
    shape, size = case["shape"], case["shape"][-1]
    has = [name for name, is_there in case["has"].items() if is_there]

    def drawn(*dims: int) -> Any:
        return (case["size"] * (rng.standard_normal(dims) + case["offset"])).astype(np.float32)

    vectors = {"scale": rng.standard_normal(size).astype(np.float32)}
    vectors |= {"shift": rng.standard_normal(size).astype(np.float32)} if "shift" in has else {}
    vectors |= {"bias": drawn(size)} if "bias" in has else {}
    feeds = {"x": unaligned(drawn(*shape))}
    t = feeds["x"]
    if case["skip"]:
        dims = {"same": shape, "rows": shape[-2:], "ones": (1, 1, *shape[-2:])}[case["skip"]]
        feeds["skip"] = drawn(*dims)
        t = t + feeds["skip"].reshape(dims[2:] if case["skip"] == "ones" else dims)
        has.append("skip")
    if "bias" in has:
        t = t + vectors["bias"]
    model = normalization_model(
        vectors, has, centred=int(case["is_centred"]), epsilon=case["epsilon"]
    )
    found, *sums = opened(model, library, case["threads"]).run(feeds)
    for one in sums:
        np.testing.assert_array_equal(one, t)
    wanted = normalized(t, case["epsilon"], is_centred=case["is_centred"])
    scale, shift = vectors["scale"].astype(np.float64), vectors.get("shift", np.zeros(size))
    unit = (1 + np.abs(wanted)) * np.abs(scale) + np.abs(shift) + np.finfo(np.float32).tiny
    wanted = wanted * scale + shift
    # Without an epsilon a row of two equal values has no normal form.
    is_defined = np.isfinite(wanted)
    assert found.shape == shape
    np.testing.assert_array_equal(np.isfinite(found), is_defined)
    return float((np.abs(found - wanted) / unit)[is_defined].max(initial=0.0))


def test_normalizations_agree_with_float64(library: str, request: pytest.FixtureRequest) -> None:
    rng = np.random.default_rng(0)
    for _ in range(CASES_SLOW if request.config.getoption("--slow") else CASES):
        case = draw_normalization(rng)
        error = normalization_error(case, library, rng)
        assert error < NORMALIZATION_BOUND, (error, case)


@pytest.mark.parametrize("is_centred", [True, False])
@pytest.mark.parametrize("value", [0.0, 0.1, -3e38, 1e-45, 7e10])
def test_constant_rows(library: str, value: float, is_centred: bool) -> None:
    vectors = {name: np.full(1000, 2.0, np.float32) for name in ("scale", "shift")}
    x = np.full((3, 1000), value, np.float32)
    (y,) = opened(normalization_model(vectors, centred=int(is_centred)), library).run({"x": x})
    expected = 2 * normalized(x, 1e-5, is_centred=is_centred) + 2
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("is_centred", [True, False])
@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_what_is_no_number_stays_in_its_row(library: str, special: float, is_centred: bool) -> None:
    x = np.random.default_rng(0).standard_normal((3, 70)).astype(np.float32)
    x[1, 5] = special
    model = normalization_model({"scale": np.ones(70, np.float32)}, centred=int(is_centred))
    (y,) = opened(model, library).run({"x": x})
    np.testing.assert_allclose(y, normalized(x, 1e-5, is_centred=is_centred), atol=1e-6)


def test_normalizations_of_nothing_and_of_what_does_not_fit(library: str) -> None:
    model = normalization_model({"scale": np.ones(4, np.float32)}, ["skip", "sum"])
    session = opened(model, library)
    empty = np.zeros((3, 0, 4), np.float32)
    assert [y.shape for y in session.run({"x": empty, "skip": empty})] == [(3, 0, 4)] * 2
    x = np.zeros((2, 3, 4), np.float32)
    for other in ((2, 3, 5), (2, 4), (2, 1, 4), (1, 2, 2, 3, 4), ()):
        with pytest.raises(RuntimeFailed, match="another shape than the input"):
            session.run({"x": x, "skip": np.zeros(other, np.float32)})
    for wrong in ((4, 3), (4, 0), (1,)):
        with pytest.raises(RuntimeFailed, match="per element of a row"):
            session.run({"x": np.zeros(wrong, np.float32), "skip": x})
    with pytest.raises(RuntimeFailed, match="has no axis"):
        session.run({"x": np.float32(0), "skip": x})


# ** products **


def draw_product(rng: np.random.Generator) -> dict[str, Any]:
    sizes = [1, 2, 7, 15, 16, 17, 31, 33, 48, 100, 257, 530]
    names = sorted(NUMBERS)
    return {
        "rows": [int(v) for v in rng.choice([1, 1, 2, 3, 5, 13, 29, 64, 97], rng.integers(0, 3))],
        "depth": int(rng.choice([*sizes, 1025])),
        "columns": int(rng.choice(sizes)),
        "transposed": int(rng.integers(2)),
        "halved": int(rng.integers(2)),
        "bias": rng.choice(["", "flat", "row", "single", "all", "column", "number", "line"]),
        "factor": float(rng.choice([1, 1, -0.125, 3.3])),
        "activation": names[rng.integers(len(names))],
        "threads": int(rng.choice([1, 1, 2])),
    }


def product_error(case: dict[str, Any], library: str, rng: np.random.Generator) -> float:
    """Largest error relative to what `PRODUCT_BOUND` is relative to, before the activation."""
    depth, columns = case["depth"], case["columns"]
    x = unaligned(rng.standard_normal((*case["rows"], depth)).astype(np.float32))
    w = rng.standard_normal((depth, columns)).astype(np.float32)
    bias = rng.standard_normal(columns).astype(np.float32)
    factor, alpha, beta = case["factor"], -0.4, 0.9
    wide, flat = x.astype(np.float64), w.astype(np.float64) * factor
    expected = wide @ flat
    unit = np.abs(wide) @ np.abs(flat)
    # The last four are read in the run; they go with two axes.
    read = case["bias"] in ("all", "column", "number", "line")
    if read and x.ndim != 2:
        x, expected, unit = (one.reshape(-1, one.shape[-1]) for one in (x, expected, unit))
    shape = {"all": (len(x), columns), "column": (len(x), 1), "number": (), "line": (columns,)}
    added = rng.standard_normal(shape.get(case["bias"], ())).astype(np.float32)
    if case["bias"] == "single":
        bias = bias[:1].reshape((1,) * int(rng.integers(3)))
    if case["bias"]:
        term = 0.5 * (added if read else bias)
        expected, unit = expected + term, unit + np.abs(term)
    if case["halved"] and unit.size:
        unit = np.full_like(unit, unit.max())
    model = product_model(
        np.ascontiguousarray(w.T) if case["transposed"] else w,
        {"flat": bias, "single": bias, "row": bias[None]}.get(case["bias"]),
        is_sum=read,
        transposed=case["transposed"],
        halved=case["halved"],
        factor=factor,
        bias_factor=0.5,
        activation=NUMBERS[case["activation"]],
        alpha=alpha,
        beta=beta,
    )
    feeds = {"x": x, "z": added} if read else {"x": x}
    (found,) = opened(model, library, case["threads"]).run(feeds)
    expected = activated(expected, case["activation"], alpha, beta)
    assert found.shape == ((len(x), columns) if read else (*case["rows"], columns))
    return float((np.abs(found - expected) / (unit + 1)).max())


def test_products_agree_with_float64(library: str, request: pytest.FixtureRequest) -> None:
    rng = np.random.default_rng(0)
    for _ in range(CASES_SLOW if request.config.getoption("--slow") else CASES):
        case = draw_product(rng)
        error = product_error(case, library, rng)
        assert error < PRODUCT_BOUND, (error, case)


def test_products_of_many_rows_and_deep_ones(library: str) -> None:
    """More than are packed at a time, in both directions."""
    rng = np.random.default_rng(0)
    base = {"transposed": 0, "bias": "flat", "factor": 1.0, "activation": "Relu"}
    for rows, depth, columns in ((1100, 300, 33), (130, 4100, 40), (1, 5000, 16)):
        for threads, halved in ((1, 0), (1, 1), (2, 0), (2, 1)):
            case = {"rows": [rows], "depth": depth, "columns": columns, "threads": threads}
            assert product_error(base | case | {"halved": halved}, library, rng) < PRODUCT_BOUND


@pytest.mark.parametrize("special", [np.inf, np.nan, 1e-45, 3e38])
def test_special_values_in_products(library: str, special: float) -> None:
    rng = np.random.default_rng(0)
    x, w = np.ones((20, 40), np.float32), rng.uniform(0.5, 1, (40, 20)).astype(np.float32)
    x[3, 7] = special
    (y,) = opened(product_model(w), library).run({"x": x})
    with np.errstate(over="ignore"):
        expected = (x.astype(np.float64) @ w).astype(np.float32)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    # Between halves of the rows, 3 and 13, what is no number spreads, and never gets lost.
    (halved,) = opened(product_model(w, halved=1), library).run({"x": x})
    others = [i for i in range(20) if i not in (3, 13)]
    np.testing.assert_allclose(halved[others], expected[others], rtol=1e-6)
    assert not np.isfinite(halved[~np.isfinite(expected)]).any()


def test_products_of_nothing_and_of_what_does_not_fit(library: str) -> None:
    w = np.ones((5, 3), np.float32)
    for halved in (1, 0):
        session = opened(product_model(w, halved=halved), library)
        assert session.run({"x": np.zeros((0, 2, 5), np.float32)})[0].shape == (0, 2, 3)
    for other in ((2, 3), (5, 0), (0,), ()):
        with pytest.raises(RuntimeFailed, match="of the input have another length"):
            session.run({"x": np.zeros(other, np.float32)})
    for weights, bias, attrs, message in (
        (w[0], None, {}, "two axes, none of them empty"),
        (w[:0], None, {}, "two axes, none of them empty"),
        (w, np.ones(5, np.float32), {}, "one bias per column, or one for all"),
        (w, np.ones((2, 3), np.float32), {}, "one bias per column, or one for all"),
        (w, None, {"activation": 99}, "an activation that this library does not know"),
        (w, None, {"is_constant": False}, "the weights must be constant"),
    ):
        with pytest.raises(RuntimeFailed, match=message):
            opened(product_model(weights, bias, **attrs), library)
    session = opened(product_model(w, is_sum=True), library)
    for added in ((2, 1), (3, 3), (1, 1, 3), (2,), (4, 2)):
        with pytest.raises(RuntimeFailed, match="another shape than the product"):
            session.run({"x": np.ones((4, 5), np.float32), "z": np.ones(added, np.float32)})


def test_nodes_that_read_one_weight_share_what_is_packed(library: str) -> None:
    """In one way: as it is, transposed, and scaled are three."""
    rng = np.random.default_rng(0)
    w, x = (rng.standard_normal((40, 40)).astype(np.float32) for _ in range(2))
    ways: list[dict[str, Any]] = [
        {},
        {"transposed": 1},
        {"factor": 2.0},
        {},
        {"factor": float("nan")},
        {"factor": 2.0},
        {"halved": 1},
    ]
    model = product_model(w)
    for i, attrs in enumerate(ways[1:]):
        other = model.graph.node.add()
        other.CopyFrom(product_model(w, **attrs).graph.node[0])
        other.output[0] = f"y{i}"
        model.graph.output.add().CopyFrom(helper.make_tensor_value_info(f"y{i}", 1, None))
    session = opened(model, library)
    opened(model, library)  # another session comes and goes
    found = session.run({"x": x})
    wide = w.astype(np.float64)
    for y, attrs in zip(found, ways, strict=True):
        expected = x @ (wide.T if attrs.get("transposed") else wide) * attrs.get("factor", 1.0)
        np.testing.assert_allclose(y, expected, atol=1e-4)


def test_from_eight_threads_at_once(library: str) -> None:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((300, 70)).astype(np.float32)
    scale = rng.standard_normal(300).astype(np.float32)
    inputs = [rng.standard_normal((5 + 40 * i, 300)).astype(np.float32) for i in range(8)]
    halved = product_model(w, halved=1)
    for model in (product_model(w), halved, normalization_model({"scale": scale})):
        session = opened(model, library, 2)
        alone = [session.run({"x": x})[0] for x in inputs]
        with ThreadPoolExecutor(8) as pool:
            for _ in range(5):
                together = list(pool.map(lambda x, s=session: s.run({"x": x})[0], inputs))
                for one, other in zip(alone, together, strict=True):
                    np.testing.assert_array_equal(one, other)


# ** sites **

ROWS, SIZE = 6, 40


def written(
    op: str, inputs: str, outputs: str, domain: str = "", opset: int = 23, **attrs: Any
) -> onnx.ModelProto:
    """One operator of onnxruntime: upper case for constants, by the letter of their shape."""
    shapes = {"v": [SIZE], "w": [SIZE, SIZE], "o": [1], "r": [1, SIZE], "m": [ROWS, SIZE]}
    rng = np.random.default_rng(0)
    names = inputs.split(",")
    constants = [
        numpy_helper.from_array(rng.standard_normal(shapes[n[0].lower()]).astype(np.float32), n)
        for n in names
        if n.isupper()
    ]
    made = outputs.split(",")
    graph = helper.make_graph(
        [helper.make_node(op, names, made, domain=domain, **attrs)],
        "g",
        [
            helper.make_tensor_value_info(
                n, onnx.TensorProto.FLOAT, [2, ROWS, SIZE][3 - int(n[1]) :]
            )
            for n in names
            if n and n.islower()
        ],
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in made if n],
        constants,
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def found_in(model: onnx.ModelProto) -> list[Site]:
    return [*normalizations(model), *products(model)]


MS = "com.microsoft"


@pytest.mark.parametrize(
    "model",
    [
        written("LayerNormalization", "x3,V1,V2", "y", opset=17),
        written("LayerNormalization", "x3,V1", "y", opset=17, axis=2, epsilon=1e-3),
        written("SimplifiedLayerNormalization", "x3,V1", "y", opset=17),
        written("RMSNormalization", "x3,V1", "y", axis=-1),
        written("SkipLayerNormalization", "x3,z3,V1", "y", MS, 17),
        written("SkipLayerNormalization", "x3,z3,V1,V2,V3", "y,,,s", MS, 17, epsilon=0.1),
        written("SkipLayerNormalization", "x3,z2,V1,,V3", "y,,,s", MS, 17),
        written("SkipSimplifiedLayerNormalization", "x3,z3,V1,V2", "y,,,s", MS, 17),
        written("SkipSimplifiedLayerNormalization", "x3,z3,V1", "y", MS, 17),
        written("MatMul", "x3,W1", "y"),
        written("MatMul", "x1,W1", "y"),
        written("Gemm", "x2,W1,V1", "y", alpha=0.3, beta=1.7),
        written("Gemm", "x2,W1,R1", "y", transB=1),
        written("Gemm", "x2,W1,O1", "y"),
        written("Gemm", "x2,W1,v1", "y", beta=1.7),
        written("FusedGemm", "x2,W1,m2", "y", MS, 17, activation="Relu"),
        written("FusedMatMul", "x3,W1", "y", MS, 17, alpha=0.3, transB=1),
        written("FusedGemm", "x2,W1,V1", "y", MS, 17, activation="Relu"),
        written(
            "FusedGemm", "x2,W1", "y", MS, 17, activation="LeakyRelu", activation_alpha=0.3
        ),
    ],
    ids=lambda model: model.graph.node[0].op_type,
)  # fmt: skip
def test_what_replaces_a_node_computes_the_same(model: onnx.ModelProto) -> None:
    named = with_names(model)
    feeds = {
        value.name: np.random.default_rng(i)
        .standard_normal([d.dim_value for d in value.type.tensor_type.shape.dim])
        .astype(np.float32)
        for i, value in enumerate(model.graph.input)
    }
    (site,) = found_in(named)
    (way,) = site.ways
    expected = OrtSession(named, OrtOptions(1, "disabled")).run(feeds)
    found = opened(with_ways(named, [(site, way)]), library_path()).run(feeds)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_large_products_may_be_halved() -> None:
    rng = np.random.default_rng(0)
    w, x = (rng.standard_normal(shape).astype(np.float32) for shape in ((260, 300), (7, 260)))
    model = with_names(product_model(w))
    model.graph.node[0].CopyFrom(helper.make_node("MatMul", ["x", "w"], ["y"], name="product"))
    (site,) = products(model)
    assert [way.name for way in site.ways] == [PRODUCT, HALVED]
    opening = [opened(with_ways(model, [(site, way)]), library_path()) for way in site.ways]
    plain, halved = (one.run({"x": x})[0] for one in opening)
    assert not np.array_equal(plain, halved)
    for y in (plain, halved):
        np.testing.assert_allclose(y, x @ w, atol=1e-4)


@pytest.mark.parametrize(
    "model",
    [
        written("LayerNormalization", "x3,V1,V2", "y,mean,inverse", opset=17),
        written("LayerNormalization", "x3,M1,M2", "y", opset=17, axis=1),
        written("LayerNormalization", "x3,O1", "y", opset=17),
        written("LayerNormalization", "x3,v1", "y", opset=17),
        written("SkipLayerNormalization", "x3,z3,V1,,v1", "y", MS, 17),
        written("SkipLayerNormalization", "x3,z3,V1", "y,mean,,", MS, 17),
        written("MatMul", "W1,x3", "y"),
        written("MatMul", "x3,V1", "y"),
        written("Gemm", "x2,W1,M1", "y"),
        written("Gemm", "x2,W1", "y", transA=1),
        written("FusedGemm", "x2,W1,V1", "y", MS, 17, activation="Tanh"),
        written("FusedMatMul", "x3,W1", "y", MS, 17, transBatchA=1),
    ],
    ids=lambda model: model.graph.node[0].op_type,
)
def test_other_nodes_keep_their_kernels(model: onnx.ModelProto) -> None:
    assert not found_in(with_names(model))
