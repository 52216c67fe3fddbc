"""A backend that runs launches of plans is a folder, and its place in the registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from tests.examples.house import House

RECORD = '''"""Products, computed by NumPy in float64."""

from eqsat_opt.runtime.backends.record import BackendRecord, Lazy

__all__ = ["BACKEND", "NAME"]

NAME = "toy"

BACKEND = BackendRecord(
    name=NAME,
    launcher=Lazy("eqsat_opt.runtime.backends.toy.launcher:ToyLauncher"),
    has_kernel=Lazy("eqsat_opt.runtime.backends.toy.launcher:is_product"),
    launches=Lazy("eqsat_opt.runtime.backends.toy.launcher:is_product"),
    takes_views=True,
)
'''

LAUNCHER = '''"""Launches of products in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.runtime.backends.launching import Bound, Launcher, require_default
from eqsat_opt.runtime.plan.plan import Launch

__all__ = ["ToyLauncher", "is_product"]


def is_product(kernel: Kernel) -> bool:
    """Return whether a kernel is a product and nothing else."""
    return [step.op for step in kernel.steps] == ["MatMul"]


class ToyLauncher(Launcher):
    """Launcher of products."""

    def version(self) -> str:
        """Return the version of the arithmetic."""
        return "toy 1"

    def build(self, launch: Launch, bound: Bound) -> Callable[[], None]:
        """Build the product on this memory."""
        require_default(launch)
        (step,) = launch.body.steps
        a, b = (bound.reads[number] for number in step.operands)

        def run() -> None:
            bound.writes[0][...] = a.astype(np.float64) @ b.astype(np.float64)

        return run
'''

MODEL = """
<ir_version: 8, opset_import: ["": 17]>
agraph (float[8, 16] x, float[16, 4] w) => (float[8, 4] y)
{
    bent = Tanh(x)
    product = MatMul(bent, w)
    y = Relu(product)
}
"""

BACKENDS = "eqsat_opt/runtime/backends"


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    house = House.copied_to(tmp_path_factory.mktemp("house"))
    folder = house.path / BACKENDS / "toy"
    folder.mkdir()
    (folder / "__init__.py").write_text(RECORD)
    (folder / "launcher.py").write_text(LAUNCHER)
    onnx.save(onnx.parser.parse_model(MODEL), house.path / "model.onnx")
    return house.with_edits({f"{BACKENDS}/registry.py": ('"analytic",\n', '"analytic", "toy",\n')})


def feeds() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {"x": (8, 16), "w": (16, 4)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def test_a_plan_runs_in_it_what_it_has_a_kernel_for(house: House) -> None:
    np.savez(house.path / "feeds.npz", **feeds())
    done = house.run(
        "-c",
        "import eqsat_opt, numpy as np\n"
        "plan = eqsat_opt.plan_model('model.onnx', backend='toy')\n"
        "print(sorted((one.backend, one.body.steps[0].op) for one in plan.launches))\n"
        "(y,) = eqsat_opt.load_plan(plan, 'model.onnx').run(dict(np.load('feeds.npz')))\n"
        "np.save('y.npy', y)",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[('numpy', 'Relu'), ('numpy', 'Tanh'), ('toy', 'MatMul')]"
    session = onnxruntime.InferenceSession(house.path / "model.onnx")
    np.testing.assert_allclose(
        np.load(house.path / "y.npy"), session.run(None, feeds())[0], rtol=1e-5, atol=1e-6
    )


def test_users_may_ask_for_it(house: House, tmp_path: Path) -> None:
    done = house.run(
        "-c",
        "from eqsat_opt.ir import import_model, load_model\n"
        "from eqsat_opt.pipeline.options import Options\n"
        "from eqsat_opt.select.rebuilding.planning import placements\n"
        "options = Options(backends=('ort', 'toy'), plan='plan.json')\n"
        "print(options.portable_backends)\n"
        "graph = import_model(load_model('model.onnx'))\n"
        "print([one.name for one in placements(graph, options.backends)])",
    )
    assert done.stdout.splitlines() == ["('ort',)", "['one session', 'toy, ort']"], done.stderr
    (bad,) = house.commands([
        ("plan", "make", "model.onnx", "-o", str(tmp_path / "plan.json"), "--backend", "cray"),
    ])  # fmt: skip
    assert bad.returncode == 1
    assert "there are numpy, ort, native, generated, openvino, toy" in " ".join(bad.stderr.split())


def test_its_launches_have_prices(house: House) -> None:
    done = house.run(
        "-c",
        "from eqsat_opt.runtime.backends.registry import load_backend\n"
        "from eqsat_opt.runtime.backends.protocol import Offer\n"
        "from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step\n"
        "from eqsat_opt.ir.values.types import TensorType\n"
        "toy = load_backend('launched:toy')\n"
        "operands = tuple(Operand(TensorType('float32', (4, 4)), False) for _ in range(2))\n"
        "kernel = Kernel(operands, (Step('MatMul', (), (0, 1)),), (2,))\n"
        "(how,) = toy.implementations(kernel)\n"
        "print(toy.measure(toy.request(Offer(kernel, toy.name, how)), 1, 0.01).time_us > 0)\n",
    )
    assert done.stdout.strip() == "True", done.stderr
