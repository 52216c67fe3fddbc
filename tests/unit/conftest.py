"""The tiny zoo, optimised once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from onnx import ModelProto

from eqsat_opt.api import Result, run
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.options import Options

SEARCH = Options(
    objective="launches",
    measure=False,
    race=False,
    check=1,
    strict=True,
    store="",
    threads=1,
    budget_s=600.0,
    nodes=2_500,
)


@pytest.fixture(scope="session")
def tiny_model() -> Callable[[str], ModelProto]:
    """Tiny model by name."""
    return cache(lambda name: zoo.build(name, scale="tiny"))


@pytest.fixture(scope="session")
def tiny_result(tiny_model: Callable[[str], ModelProto]) -> Callable[[str], Result]:
    """What the optimiser makes of a tiny model, with as few launches as possible."""
    return cache(lambda name: run(tiny_model(name), SEARCH))
