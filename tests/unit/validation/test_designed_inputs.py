"""What random inputs do not show: each of these mutants agrees with its original on all of them.

And what no input shows, because only the rounding of sums in another order is different.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.ir.sizes.sizes import Sizes
from eqsat_opt.racing.examination import Examination, RaceTerms, examine
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.backends.sandbox import Sandbox, sandbox
from eqsat_opt.validation.compare import Reference, differences
from eqsat_opt.validation.designed_inputs import added_masks
from eqsat_opt.validation.noise import noisy

OPTIONS = OrtOptions(threads=1)
TERMS = RaceTerms(1, Numerics.REASSOCIATE, (0, 1, 2), (Sizes(),), 0.0)
WEIGHT = np.random.default_rng(0).standard_normal((8, 4, 1, 1)).astype(np.float32)


def model(signature: str, nodes: str, **weights: Any) -> onnx.ModelProto:
    text = f'<ir_version: 9, opset_import: ["":17]> g {signature} {{{nodes}}}'
    result = onnx.parser.parse_model(text)
    for name, value in weights.items():
        array = np.asarray(value, None if isinstance(value, np.ndarray) else np.float32)
        result.graph.initializer.append(numpy_helper.from_array(array, name))
    return result


IMAGES = "(float[2,3,4,4] x) => (float[2,3,1,1] y)"
GATED = "(float[4,16] s, float[4,16] m, float[4,16] t) => (float[4,16] y)"
ATTENTION = (
    "(float[1,2,4,8] q, float[1,2,4,8] k, float[1,2,4,8] v, float[1,1,4,4] m) => (float[1,2,4,8] y)"
)
SCORES = "kt = Transpose<perm=[0,1,3,2]>(k) l = MatMul(q, kt) a = Add(l, m)"
MUTANTS = {
    "a maximum that starts at the least number": (
        "x at -inf",
        model(IMAGES, "y = ReduceMax<axes=[2,3]>(x)"),
        model(IMAGES, "y = GlobalMaxPool(x)"),
    ),
    "a gate that cancels": (
        "a gate",
        model(
            GATED, "a = Mul(m, s) n = Sub(one, m) b = Mul(n, t) c = Add(a, b) y = Softmax(c)", one=1
        ),
        model(GATED, "d = Sub(s, t) e = Mul(m, d) c = Add(e, t) y = Softmax(c)"),
    ),
    "a row that is masked whole": (
        "m masked",
        model(ATTENTION, f"{SCORES} p = Softmax(a) y = MatMul(p, v)"),
        model(
            ATTENTION,
            f"{SCORES} h = ReduceMax<axes=[-1]>(a) z = Greater(h, low) p = Softmax(a) "
            "o = MatMul(p, v) y = Where(z, o, zero)",
            low=-1e30,
            zero=0,
        ),
    ),
    "a padded kernel": (
        "x at",
        model("(float[1,4,8,8] x) => (float[1,8,8,8] y)", "y = Conv(x, w)", w=WEIGHT),
        model(
            "(float[1,4,8,8] x) => (float[1,8,8,8] y)",
            "y = Conv<pads=[1,1,1,1]>(x, w)",
            w=np.pad(WEIGHT, ((0, 0), (0, 0), (1, 1), (1, 1))),
        ),
    ),
    "a conjunction that is never true": (
        "all flags 1",
        model(
            "(bool[32] x) => (bool[1] y)",
            "i = Cast<to=6>(x) s = ReduceMin<axes=[0]>(i) y = Cast<to=9>(s)",
        ),
        model(
            "(bool[32] x) => (bool[1] y)",
            "i = Cast<to=6>(x) s = ReduceMin<axes=[0]>(i) t = Sub(s, s) y = Cast<to=9>(t)",
        ),
    ),
    "integers through a float that is too narrow": (
        "integers at their ends",
        model("(uint32[8] x) => (int64[8] y)", "y = Cast<to=7>(x)"),
        model("(uint32[8] x) => (int64[8] y)", "f = Cast<to=1>(x) y = Cast<to=7>(f)"),
    ),
}

SUMS = "(float[8,8] x, float[8,8] z, float[8,8] m) => (float[8,8] y)"
SOUND = {
    "cancellation": (
        model(SUMS, "a = Add(x, z) b = Add(a, m) y = Sub(b, z)"),
        model(SUMS, "a = Sub(z, z) b = Add(x, a) y = Add(b, m)"),
    ),
    "addition before a softmax": (
        model(SUMS, "a = Add(x, z) b = Add(a, m) y = Softmax(b)"),
        model(SUMS, "a = Add(z, m) b = Add(a, x) y = Softmax(b)"),
    ),
    "a chain of products before what knows infinities from NaN": (
        model(SUMS, "a = MatMul(x, w) b = MatMul(a, v) c = Relu(b) d = Add(c, z) y = Add(d, m)",
              w=np.ones((8, 3), np.float32), v=np.eye(3, 8, dtype=np.float32) - 0.5),
        model(SUMS, "b = MatMul(x, u) c = Relu(b) d = Add(c, z) y = Add(d, m)",
              u=np.ones((8, 3), np.float32) @ (np.eye(3, 8, dtype=np.float32) - 0.5)),
    ),
    "a product of sums": (
        model(SUMS, "a = MatMul(x, w) b = MatMul(a, v) c = MatMul(m, z) y = Add(b, c)",
              w=np.ones((8, 3), np.float32), v=np.ones((3, 8), np.float32)),
        model(SUMS, "b = MatMul(x, u) c = MatMul(m, z) y = Add(c, b)",
              u=np.full((8, 8), 3, np.float32)),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with sandbox() as one:
        yield one


def examined(
    box: Sandbox,
    first: onnx.ModelProto,
    second: onnx.ModelProto,
    numerics: Numerics = Numerics.REASSOCIATE,
) -> Examination:
    terms = replace(TERMS, numerics=numerics, box=box)
    return examine({"best": second}, first, terms)


@pytest.mark.parametrize("name", MUTANTS)
def test_what_random_inputs_do_not_show(name: str, box: Sandbox) -> None:
    what, first, second = MUTANTS[name]
    random = Reference.of(first, OPTIONS, (0, 1, 2))
    assert not any(one.why for one in differences(random, second, OPTIONS, Numerics.REASSOCIATE))
    found = examined(box, first, second)
    assert what in found.wrong["best"].why
    assert not examined(box, first, first).wrong


@pytest.mark.parametrize("name", SOUND)
def test_the_rounding_of_sums_in_another_order_is_no_error(name: str, box: Sandbox) -> None:
    found = examined(box, *SOUND[name])
    assert not found.wrong
    assert found.reference is not None
    assert any(trial.draft.kind == "large" for trial in found.reference.trials)


def test_a_class_is_held_to_its_promise_only(box: Sandbox) -> None:
    """Recombined factors may carry infinities to neighbours, but 0 and 1 are ordinary numbers."""
    _, first, second = MUTANTS["a padded kernel"]
    assert not examined(box, first, second, Numerics.REFACTOR).wrong
    assert not examined(box, first, second, Numerics.FINITE).wrong
    what, first, second = MUTANTS["a gate that cancels"]
    assert what in examined(box, first, second, Numerics.FINITE).wrong["best"].why
    _, first, second = MUTANTS["a conjunction that is never true"]
    assert examined(box, first, second, Numerics.RELAXED).wrong


def test_what_is_large_hides_no_error_beside_it(box: Sandbox) -> None:
    """One output holds the closed branch of -1e9 beside the ordinary numbers."""
    signature = GATED.replace("float[4,16] y", "float[4,32] y")
    gate = "a = Mul(m, s) n = Sub(one, m) b = Mul(n, t) c = Add(a, b)"
    rest = "p = Softmax(c) y = Concat<axis=1>(t, p)"
    first = model(signature, f"{gate} {rest}", one=1)
    second = model(signature, f"d = Sub(s, t) e = Mul(m, d) c = Add(e, t) {rest}")
    assert "a gate" in examined(box, first, second).wrong["best"].why


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("a = Add(x, m) y = Softmax(a)", ["x", "m"]),
        ("c = Unsqueeze(m, i) d = Squeeze(c, i) a = Add(x, d) y = Softmax(a)", ["x", "m"]),
        ("s = Mul(x, x) a = Add(s, m) b = Add(a, m) y = LogSoftmax(b)", ["m"]),
        ("a = Add(x, m) y = Relu(a)", []),
        ("a = Add(x, m) b = Softmax(a) y = Add(b, m)", ["x"]),
        ("a = Mul(x, m) y = Softmax(a)", []),
        ("y = Softmax(x)", []),
    ],
)
def test_masks_are_known_by_their_use(nodes: str, expected: list[str]) -> None:
    given = model("(float[4,4] x, float[4,4] m) => (float[4,4] y)", nodes, i=np.array([0]))
    assert added_masks(given.graph, ["x", "m"]) == expected


def moved(given: onnx.ModelProto, **feeds: Any) -> float:
    """By how much a model with random errors leaves the original, at most."""
    changed = noisy(given)
    assert changed is not None
    values = {name: np.asarray(value, np.float32) for name, value in feeds.items()}
    (own,) = OrtSession(given, OPTIONS).run(values)
    session = OrtSession(changed, OPTIONS)
    return max(float(np.abs(session.run(values)[0] - own).max()) for _ in range(4))


def test_noise_is_relative_to_the_terms_and_exact_sums_have_none() -> None:
    sums = model("(float[N] a, float[N] b) => (float[N] y)", "s = Add(a, b) y = Sub(s, a)")
    assert 100 < moved(sums, a=[1e9] * 8, b=[0.5] * 8) < 1e5
    assert 0 < moved(sums, a=[1.5] * 8, b=[0.5] * 8) < 1e-4
    assert moved(sums, a=[1, 0, 3], b=[1, 0, -3]) == 0
    product = model("(float[2,8] a) => (float[2,2] y)", "y = MatMul(a, w)",
                    w=np.array([[1, 1]] * 7 + [[-7, -7]], np.float32))  # fmt: skip
    assert 10 < moved(product, a=np.full((2, 8), 1e7)) < 1e4


def test_noise_knows_what_it_does_not_know() -> None:
    for nodes in ("y = LpNormalization(x)", "y = Mystery.Op(x)"):
        graph = onnx.parser.parse_graph(f"g (float[4] x) => (float[4] y) {{{nodes}}}")
        imports = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("Mystery", 1)]
        assert noisy(onnx.helper.make_model(graph, opset_imports=imports)) is None
