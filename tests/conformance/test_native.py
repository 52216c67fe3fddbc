"""Every kernel of our own against float64, with each set of instructions that runs here."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.native.convolutions import TILES, layer_error, tilings
from eqsat_opt.runtime.backends.native.library import instructions, missing
from tests.oracles.blocked import blocked, convolved, plain, winograd_model
from tests.oracles.native import NUMBERS, activated, opened

if missing():
    pytest.skip(missing(), allow_module_level=True)

CASES = 150
CASES_SLOW = 2_400
KERNELS = [(kernel, tile, int(in_run)) for kernel in TILES for tile, in_run in tilings(kernel)]


def draw(rng: np.random.Generator) -> dict[str, Any]:
    kernel, tile, in_run = KERNELS[rng.integers(len(KERNELS))]
    names = sorted(NUMBERS)
    return {
        "kernel": kernel,
        "tile": tile,
        "in_run": in_run,
        "n": int(rng.choice([1, 1, 1, 2, 3])),
        "channels": 16 * int(rng.integers(1, 7)),
        "out": 16 * int(rng.integers(1, 7)),
        "size": tuple(int(v) for v in rng.integers(1, 30, 2)),
        "pads": tuple(int(v) for v in rng.integers(0, 4, 4)),
        "block": int(rng.choice([16, 16, 8])),
        "activation": names[rng.integers(len(names))],
        "has_bias": bool(rng.integers(2)),
        "has_residual": bool(rng.integers(2)),
        "threads": int(rng.choice([1, 1, 2])),
    }


def error_of(case: dict[str, Any], library: str, rng: np.random.Generator) -> float | None:
    """Largest error relative to the maximum before the activation, which hardly widens any.

    ``None`` where the kernel is larger than the data.
    """
    (h, w), (top, left, bottom, right) = case["size"], case["pads"]
    r, s = case["kernel"]
    if h + top + bottom < r or w + left + right < s:
        return None
    draw = rng.standard_normal
    weights = draw((case["out"], case["channels"], r, s)).astype(np.float32)
    weights /= np.float32(np.sqrt(case["channels"] * r * s))
    bias = draw(case["out"]).astype(np.float32) if case["has_bias"] else None
    x = draw((case["n"], case["channels"], h, w)).astype(np.float32)
    expected = convolved(x, weights, case["pads"])
    if bias is not None:
        expected += bias[None, :, None, None]
    block = case["block"]
    feeds = {"x": blocked(x, block)}
    if case["has_residual"]:
        z = draw(expected.shape).astype(np.float32)
        expected += z
        feeds["z"] = blocked(z, block)
    scale = max(np.abs(expected).max(), 1.0)  # values have a deviation of one
    alpha, beta = (-0.4, 0.9) if case["activation"] == "Clip" else (0.2, 0.5)
    expected = activated(expected, case["activation"], alpha, beta)
    model = winograd_model(
        weights,
        bias,
        has_residual=case["has_residual"],
        block=block,
        pads=case["pads"],
        tile=case["tile"],
        transform_in_run=case["in_run"],
        activation=NUMBERS[case["activation"]],
        alpha=alpha,
        beta=beta,
    )
    (found,) = opened(model, library, case["threads"]).run(feeds)
    assert found.shape == expected.shape
    return float(np.abs(plain(found, block) - expected).max() / scale)


def test_kernels_agree_with_float64(library: str, request: pytest.FixtureRequest) -> None:
    rng = np.random.default_rng(0)
    count = 0
    has_16_only = "avx512" in library
    for _ in range(CASES_SLOW if request.config.getoption("--slow") else CASES):
        case = draw(rng)
        if has_16_only:
            case["block"] = 16
        error = error_of(case, library, rng)
        if error is not None:
            count += 1
            assert error < layer_error(case["tile"], case["kernel"]), (error, case)
    assert count > CASES // 2


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_what_is_no_number_stays_near_where_it_is(library: str, special: float) -> None:
    x = np.ones((1, 16, 20, 20), np.float32)
    x[0, 3, 9, 9] = special
    w = np.full((16, 16, 3, 3), 0.01, np.float32)
    (found,) = opened(winograd_model(w, None, tile=[4, 4]), library).run({"x": blocked(x, 16)})
    y = plain(found, 16)
    odd = np.logical_not(np.isfinite(y)).any(axis=(0, 1))
    assert isinstance(odd, np.ndarray)
    assert odd[8:11, 8:11].all()  # where the definition has it
    assert not odd[:4].any()
    assert not odd[:, 16:].any()


def test_denormal_and_huge_values(library: str) -> None:
    w = np.full((16, 16, 3, 3), 1e-3, np.float32)
    model = winograd_model(w, None, tile=[2, 2])
    for size in (1e-38, 1e-42, 1e30):
        x = np.full((1, 16, 8, 8), size, np.float32)
        (found,) = opened(model, library).run({"x": blocked(x, 16)})
        expected = convolved(x, w, (1, 1, 1, 1))
        tiny = np.finfo(np.float32).tiny
        assert np.abs(plain(found, 16) - expected).max() <= max(1e-5 * expected.max(), tiny)


def test_relu_keeps_what_is_no_number(library: str) -> None:
    x = np.full((1, 16, 6, 6), np.nan, np.float32)
    w = np.ones((16, 16, 3, 3), np.float32)
    model = winograd_model(w, None, activation=NUMBERS["Relu"])
    (found,) = opened(model, library).run({"x": x})
    assert np.isnan(found).all()


@pytest.mark.parametrize("in_run", [0, 1])
def test_from_eight_threads_at_once(library: str, in_run: int) -> None:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((48, 32, 3, 3)).astype(np.float32)
    session = opened(winograd_model(w, None, tile=[4, 4], transform_in_run=in_run), library, 2)
    inputs = [rng.standard_normal((1, 32, 9 + i, 31)).astype(np.float32) for i in range(8)]
    alone = [session.run({"x": x})[0] for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            together = list(pool.map(lambda x: session.run({"x": x})[0], inputs))
            for one, other in zip(alone, together, strict=True):
                np.testing.assert_array_equal(one, other)


def test_an_empty_batch_and_sizes_that_change(library: str) -> None:
    w = np.ones((16, 16, 3, 3), np.float32)
    session = opened(winograd_model(w, None), library)
    assert session.run({"x": np.zeros((0, 16, 5, 5), np.float32)})[0].shape == (0, 16, 5, 5)
    for size in (5, 3, 9, 1):
        x = np.ones((2, 16, size, size), np.float32)
        (found,) = session.run({"x": blocked(x, 16)})
        np.testing.assert_allclose(plain(found, 16), convolved(x, w, (1, 1, 1, 1)), rtol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tile": [3, 3]}, "no kernel for this block, kernel and tile"),
        ({"block": 4}, "no kernel for this block, kernel and tile"),
        ({"pads": [1, 1, 1, -1]}, "a negative pad"),
        ({"pads": [1, 1]}, "too many or too few integers"),
        ({"activation": 99}, "an activation that this library does not know"),
        ({"is_constant": False}, "the weights must be constant"),
    ],
)
def test_what_no_kernel_computes_is_refused(
    library: str, changes: dict[str, Any], message: str
) -> None:
    w = np.ones((16, 16, 3, 3), np.float32)
    with pytest.raises(RuntimeFailed, match=message):
        opened(winograd_model(w, None, **changes), library)


def test_data_that_do_not_fit_are_refused(library: str) -> None:
    w = np.ones((16, 16, 3, 3), np.float32)
    session = opened(winograd_model(w, None, pads=[0, 0, 0, 0], has_residual=True), library)
    x, z = np.ones((1, 16, 5, 5), np.float32), np.ones((1, 16, 3, 3), np.float32)
    assert session.run({"x": x, "z": z})[0].shape == z.shape
    with pytest.raises(RuntimeFailed, match="the data have other channels"):
        session.run({"x": np.ones((1, 32, 5, 5), np.float32), "z": z})
    with pytest.raises(RuntimeFailed, match="the kernel is larger than the data"):
        session.run({"x": np.ones((1, 16, 1, 5), np.float32), "z": z})
    with pytest.raises(RuntimeFailed, match="another shape than the output"):
        session.run({"x": x, "z": np.ones((1, 16, 3, 4), np.float32)})


def test_the_instructions_are_named() -> None:
    assert instructions() in ("avx512", "avx2", "neon")
