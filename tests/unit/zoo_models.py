"""The zoo, for tests that take seconds for each model."""

from __future__ import annotations

import pytest

from eqsat_opt.lab import zoo
from tests.sampling import sampled

__all__ = ["DISTINCT", "each_model"]

_ALIKE = {
    "cnn_training",
    "inception_e",
    "nasnet_cell",
    "ocggs_resnet",
    "resnet18",
    "rnntc",
    "sru_step",
    "vgg16",
}
"""Built like another model, of other sizes or with other gates."""

DISTINCT = tuple(name for name in zoo.names() if name not in _ALIKE)

each_model = pytest.mark.parametrize(
    "name",
    [
        *sampled(DISTINCT, 2),
        *(pytest.param(name, marks=pytest.mark.slow) for name in sorted(_ALIKE)),
    ],
)
"""Tests every second of the distinct models of the zoo, and all of them with ``--slow``."""
