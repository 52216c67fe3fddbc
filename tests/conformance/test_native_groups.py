"""Convolutions with narrow groups against float64, with each set of instructions that runs here."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.native.library import missing
from tests.oracles.blocked import blocked, convolved_in_groups, grouped_model, plain
from tests.oracles.native import NUMBERS, activated, opened

if missing():
    pytest.skip(missing(), allow_module_level=True)

CASES = 60
CASES_SLOW = 600
BOUND = 1e-6
"""Of the maximum: the sums have few terms."""


def draw_grouped(rng: np.random.Generator) -> dict[str, Any]:
    names = sorted(NUMBERS)
    block = int(rng.choice([16, 16, 8]))
    per_group = int(rng.choice([g for g in (1, 1, 2, 4, 8) if g < block]))
    return {
        "per_group": per_group,
        "window": (int(rng.integers(1, 8)), int(rng.choice([3, 5, 7])) if per_group == 1 else 3),
        "n": int(rng.choice([1, 1, 2])),
        "channels": block * int(rng.choice([1, 2, 3, 9])),
        "size": tuple(int(v) for v in rng.integers(0, 30, 2)),
        "pads": tuple(int(v) for v in rng.integers(0, 9, 4)),
        "strides": tuple(int(v) for v in rng.integers(1, 3, 2)),
        "block": block,
        "before": str(rng.choice(["", "", "SiLU", "HardSwish", "Relu"])),
        "activation": names[rng.integers(len(names))],
        "has_bias": bool(rng.integers(2)),
        "has_residual": bool(rng.integers(2)),
        "threads": int(rng.choice([1, 1, 2])),
    }


def grouped_error(case: dict[str, Any], library: str, rng: np.random.Generator) -> float | None:
    """Largest error relative to the maximum; ``None`` where the kernel is larger than the data."""
    (h, w), (top, left, bottom, right) = case["size"], case["pads"]
    per_group, channels, window = case["per_group"], case["channels"], case["window"]
    if h + top + bottom < window[0] or w + left + right < window[1]:
        return None
    draw = rng.standard_normal
    weights = draw((channels, per_group, *window)).astype(np.float32)
    weights /= np.float32(np.sqrt(weights[0].size))
    bias = draw(channels).astype(np.float32) if case["has_bias"] else None
    x = draw((case["n"], channels, h, w)).astype(np.float32)
    groups = channels // per_group
    before = activated(x.astype(np.float64), case["before"], 0.0, 0.0)
    expected = convolved_in_groups(before, weights, case["pads"], groups, case["strides"])
    if bias is not None:
        expected += bias[None, :, None, None]
    feeds = {"x": blocked(x, case["block"])}
    if case["has_residual"]:
        z = draw(expected.shape).astype(np.float32)
        expected += z
        feeds["z"] = blocked(z, case["block"])
    scale = np.abs(expected).max(initial=1.0)
    alpha, beta = (-0.4, 0.9) if case["activation"] == "Clip" else (0.2, 0.5)
    model = grouped_model(
        weights,
        bias,
        has_residual=case["has_residual"],
        block=case["block"],
        pads=case["pads"],
        strides=case["strides"],
        input_activation=NUMBERS[case["before"]],
        activation=NUMBERS[case["activation"]],
        alpha=alpha,
        beta=beta,
    )
    (found,) = opened(model, library, case["threads"]).run(feeds)
    wanted = activated(expected, case["activation"], alpha, beta)
    assert found.shape == wanted.shape
    return float(np.abs(plain(found, case["block"]) - wanted).max(initial=0.0) / scale)


def test_groups_agree_with_float64(library: str, request: pytest.FixtureRequest) -> None:
    rng = np.random.default_rng(0)
    errors = []
    for _ in range(CASES_SLOW if request.config.getoption("--slow") else CASES):
        case = draw_grouped(rng)
        if "avx512" in library and case["block"] == 8:
            continue
        error = grouped_error(case, library, rng)
        if error is not None:
            errors.append(error)
            assert error < BOUND, (error, case)
    assert len(errors) > CASES // 3


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("per_group", [1, 2, 4, 8])
def test_what_is_no_number_stays_in_its_group_and_window(
    library: str, special: float, per_group: int
) -> None:
    x = np.ones((1, 32, 9, 20), np.float32)
    x[0, 13, 4, 9] = special
    w = np.full((32, per_group, 3, 3), 0.01, np.float32)
    (found,) = opened(grouped_model(w, None), library).run({"x": blocked(x, 16)})
    expected = convolved_in_groups(x, w, (1, 1, 1, 1), 32 // per_group)
    np.testing.assert_allclose(plain(found, 16), expected, rtol=1e-6)
    assert (~np.isfinite(expected)).sum() == 9 * per_group


def test_denormal_and_huge_values(library: str) -> None:
    w = np.full((16, 4, 3, 3), 1e-3, np.float32)
    for size in (1e-38, 1e-42, 1e30):
        x = np.full((1, 16, 8, 8), size, np.float32)
        (found,) = opened(grouped_model(w, None), library).run({"x": blocked(x, 16)})
        expected = convolved_in_groups(x, w, (1, 1, 1, 1), 4)
        tiny = np.finfo(np.float32).smallest_subnormal * 36
        assert np.abs(plain(found, 16) - expected).max() <= max(1e-6 * expected.max(), tiny)


def test_from_eight_threads_at_once(library: str) -> None:
    rng = np.random.default_rng(0)
    session = opened(
        grouped_model(rng.standard_normal((48, 8, 3, 3)).astype(np.float32), None), library, 2
    )
    inputs = [rng.standard_normal((1, 48, 9 + i, 31)).astype(np.float32) for i in range(8)]
    alone = [session.run({"x": x})[0] for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda x: session.run({"x": x})[0], inputs))
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("per_group", "changes", "message"),
    [
        (16, {}, "no kernel for this block, group and window"),
        (1, {"input_activation": 8}, "an activation that this library does not know"),
        (4, {"strides": [3, 1]}, "no kernel for this block, group and window"),
        (4, {"block": 4}, "no kernel for this block, group and window"),
        (4, {"pads": [1, -1, 1, 1]}, "a negative pad"),
        (4, {"is_constant": False}, "the weights must be constant"),
    ],
)
def test_what_no_kernel_computes_is_refused(
    library: str, per_group: int, changes: dict[str, Any], message: str
) -> None:
    w = np.ones((16, per_group, 3, 3), np.float32)
    with pytest.raises(RuntimeFailed, match=message):
        opened(grouped_model(w, None, **changes), library)


def test_an_empty_batch_and_data_that_do_not_fit(library: str) -> None:
    session = opened(
        grouped_model(np.ones((16, 4, 3, 3), np.float32), None, strides=[2, 2]), library
    )
    assert session.run({"x": np.zeros((0, 16, 5, 5), np.float32)})[0].shape == (0, 16, 3, 3)
    with pytest.raises(RuntimeFailed, match="the data have other channels"):
        session.run({"x": np.ones((1, 32, 5, 5), np.float32)})
