"""Modules of PyTorch, exported, optimised and checked; skipped where PyTorch is not installed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from eqsat_opt.errors import CheckFailed, ModelError, OptionError

QUICK = {"race": False, "measure": False, "store": "", "threads": 1, "budget": 600}
WITHOUT = (
    "import sys\n"
    "sys.modules['torch'] = None\n"
    "from eqsat_opt.errors import OptionError\n"
    "try:\n"
    "    import eqsat_opt.torch\n"
    "    eqsat_opt.torch.optimize(None)\n"
    "except OptionError as error:\n"
    "    print(error)\n"
)


def test_without_pytorch_the_error_says_what_to_install() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True
    )
    assert "pip install torch" in done.stdout


@pytest.fixture
def bridge() -> Any:
    pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    import eqsat_opt.torch

    return eqsat_opt.torch


def test_a_module_is_called_as_before(bridge: Any) -> None:
    import torch

    class Scores(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(8, 4), torch.nn.Linear(4, 2)

        def forward(self, x: Any, *, mask: Any = None) -> dict[str, Any]:
            hidden = self.second(self.first(x))
            return {"hidden": hidden if mask is None else hidden * mask, "nothing": None}

    module, x, mask = Scores().eval(), torch.randn(3, 8), torch.ones(2)
    fast = bridge.optimize(module, (x,), {"mask": mask}, **QUICK)
    found = fast(2 * x, mask=3 * mask)
    assert found["nothing"] is None
    torch.testing.assert_close(
        found["hidden"], module(2 * x, mask=3 * mask)["hidden"], rtol=1e-3, atol=1e-4
    )
    with pytest.raises(ModelError, match="x, mask"):
        fast(x)


def test_symbolic_sizes_and_the_other_exporter(bridge: Any) -> None:
    import torch

    module = torch.nn.Linear(8, 4).eval()
    shapes = ({0: torch.export.Dim("n")},)
    fast = bridge.optimize(module, (torch.randn(2, 8),), dynamic_shapes=shapes, **QUICK)
    assert fast(torch.randn(5, 8)).shape == (5, 4)
    traced = bridge.optimize(module, (torch.randn(2, 8),), dynamo=False, **QUICK)
    assert traced(torch.randn(2, 8)).shape == (2, 4)
    with pytest.raises(OptionError, match="dynamo=True"):
        bridge.optimize(module, (torch.randn(2, 8),), dynamo=False, dynamic_shapes=shapes, **QUICK)


def test_modules_that_cannot_be_exported_faithfully(bridge: Any) -> None:
    import torch

    class Frozen(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x + (1 if torch.onnx.is_in_onnx_export() else 2)

    with pytest.raises(ModelError, match=r"eval\(\)"):
        bridge.optimize(torch.nn.Dropout(), (torch.randn(2),), **QUICK)
    with pytest.raises(CheckFailed, match="differs from the module's"):
        bridge.optimize(Frozen().eval(), (torch.zeros(2, 2),), dynamo=False, **QUICK)
