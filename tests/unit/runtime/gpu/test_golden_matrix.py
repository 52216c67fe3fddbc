"""What is known of cuDNN against a second derivation of it, where one is at hand.

The file is ``shared/gpu/golden_matrix.json`` beside the checkout, or what
``EQSAT_OPT_GOLDEN_MATRIX`` names: for graphs by name, the plans that cuDNN 9.19 ranks for an H200.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eqsat_opt.common.precision import Precision
from eqsat_opt.runtime.backends.cudnn.oracle import RECORDED_VERSION, Asker, Oracle, missing_wheels
from eqsat_opt.runtime.backends.cudnn.products import ProductSpec
from eqsat_opt.runtime.backends.cudnn.spec import AnySpec, CudnnSpec
from eqsat_opt.runtime.backends.shared.tensors import StridedTensor
from eqsat_opt.runtime.devices.description import DeviceDescription
from eqsat_opt.runtime.devices.profile import load_profile
from eqsat_opt.runtime.plan.plan import dense_strides, layout_strides

BESIDE = Path(__file__).parents[5] / "shared" / "gpu" / "golden_matrix.json"
FILE = Path(os.environ.get("EQSAT_OPT_GOLDEN_MATRIX", BESIDE))
ABSENT = "" if FILE.is_file() else "there is no golden_matrix.json; see the docstring of this file"
MOST = 200
OFFERED = {"add", "bias", "relu", "sigmoid", "tanh", "gelu", "gelu_approx_tanh"}
"""Epilogues that specs have words for."""


def image(*dims: int) -> StridedTensor:
    return StridedTensor(dims, layout_strides(dims, "nhwc"))


def convolution(name: str, dtype: str, precision: Precision) -> CudnnSpec | None:
    """A graph of convolutions by its name, such as ``nhwc stem c=3 7x7s2 +bias+relu``."""
    if "nchw" in name:
        return None  # images have their channels innermost here
    batch = 1 if "n=1" in name else 8
    channels, size, window, stride = (3, 224, 7, 2) if "stem" in name else (64, 56, 3, 1)
    window = 1 if "1x1" in name else window
    group = 4 if "g=4" in name else channels if "depthwise" in name else 1
    epilogue = tuple(name.partition("+")[2].split("+")) if "+" in name else ()
    if not set(epilogue) <= OFFERED:
        return None
    y = image(batch, 64, size // stride, size // stride)
    return CudnnSpec(
        dtype,
        image(batch, channels, size, size),
        image(64, channels // group, window, window),
        y,
        pads=(window // 2,) * 4,
        strides=(stride, stride),
        dilations=(1, 1),
        epilogue=epilogue,
        residual=y if "add" in epilogue else None,
        precision=precision,
    )


def multiplication(name: str, dtype: str, precision: Precision) -> ProductSpec | None:
    """A graph of products by its name, such as ``matmul+bias+gelu``."""
    batch, rows, columns, inner = (12, 128, 128, 64) if "12x128" in name else (1, 512, 512, 512)
    epilogue = tuple(name.split("+")[1:])
    if "add" in epilogue:
        return None
    a, b, y = (batch, rows, inner), (batch, inner, columns), (batch, rows, columns)
    strides = (inner * columns, 1, inner) if name.endswith("Bt") else dense_strides(b)
    return ProductSpec(
        dtype,
        StridedTensor(a, dense_strides(a)),
        StridedTensor(b, strides),
        StridedTensor(y, dense_strides(y)),
        epilogue=epilogue,
        precision=precision,
    )


def rows() -> Iterator[tuple[str, AnySpec, dict[str, Any]]]:
    """Graphs that are asked for here, with what the file tells of them."""
    document = json.loads(FILE.read_text())["data"]
    assert document["backend"] == RECORDED_VERSION
    for full, told in document["graphs"].items():
        kind, _, name = full.partition(" ")
        dtype, precision = {
            "f32": ("float32", Precision.TF32),
            "f16": ("float16", Precision.FP16),
        }[kind]
        spec: AnySpec | None = None
        if re.search(r"\bconv\b", name):
            spec = convolution(name, dtype, precision)
        elif re.match(r"(matmul|bmm)\b", name):
            spec = multiplication(name, dtype, precision)
        if spec is not None:
            yield full, spec, told


def description() -> DeviceDescription:
    found = load_profile("h200").description
    assert found is not None
    return found


def precompiled(told: dict[str, Any]) -> list[str]:
    """The names of plans that are not compiled where they run, best ranked first."""
    late = set(told.get("rt", ()))
    return [name for number, name in enumerate(told.get("names", ())) if number not in late]


@pytest.mark.skipif(bool(ABSENT), reason=ABSENT)
def test_recorded_verdicts_are_those_of_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eqsat_opt.runtime.backends.cudnn.oracle.missing_wheels", lambda: "none")
    oracle, found = Oracle(description()), list(rows())
    differ = []
    for name, spec, told in found:
        is_there = bool(told["plans"] if isinstance(spec, ProductSpec) else precompiled(told))
        if bool(oracle.choices(spec)) != is_there:
            differ.append(name)
    agree = 1 - len(differ) / len(found)
    print(f"{agree:.1%} of {len(found)} verdicts agree; others: {', '.join(differ) or 'none'}")
    assert len(found) >= 40
    assert agree >= 0.95


@pytest.mark.skipif(bool(ABSENT or missing_wheels()), reason=ABSENT or missing_wheels())
def test_live_plans_are_those_of_the_matrix() -> None:
    asker = Asker(description())
    found = [one for one in rows() if isinstance(one[1], CudnnSpec)]
    same = {
        name: [one.name for one in asker.ask(spec, MOST) or ()] == precompiled(told)
        for name, spec, told in found
    }
    asker.close()
    differ = [name for name, is_same in same.items() if not is_same]
    share = 1 - len(differ) / len(found)
    print(f"{share:.1%} of {len(found)} lists agree; others: {', '.join(differ) or 'none'}")
    assert share >= 0.95
