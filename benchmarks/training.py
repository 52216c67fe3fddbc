"""Training steps of four kinds of models, before and after optimisation.

Run from the repository root:

    python -m benchmarks.training [KIND ...] [--optimizer adam] [--json results.json]
    python -m benchmarks.training [KIND ...] --target v100 [--json results.json]

Each kind is built with random weights, and `eqsat_opt.training` makes the graph of its training
step: the gradients of weights are products of matrices there, so this is the strong form to begin
with. `optimize` searches it, checks it and races it, with `--tuned` the form for this machine too.
Then both train for ten steps from the same start on the same batches: losses and weights must
agree. It prints operators, kernels of plans without and with generated kernels, the ratio of the
best times of a step in interleaved runs, and the largest differences, and ends with exit code 1
where losses or weights differ.

With `--target` nothing runs: it prints the operators of the step, the kernels of its cheapest cover
by epilogues and chains of up to three operators, the kernels of the plan of the result, in which
neighbouring elementwise operators are one kernel, and what both take by the profile of the device.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import onnx.parser
import typer
from onnx import numpy_helper

from benchmarks.rows import Rows
from eqsat_opt.api import run
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.ir.values.dims import literal
from eqsat_opt.pipeline.options import Options
from eqsat_opt.pipeline.plans import plan_model
from eqsat_opt.pipeline.serving import session
from eqsat_opt.training.joint import TrainingGraph, TrainingOptions, training_graph

__all__ = ["KINDS", "built", "train"]

STEPS = 10
RATE = 1e-3
CLOSE = 1e-3
"""Largest relative difference of losses and weights after ten steps."""

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Kind:
    """A model, as the text of ONNX, with the shapes of its weights.

    Attributes:
        inputs, outputs, body: the parts of the text.
        weights: name to shape.
        classes: number of classes.
    """

    inputs: str
    outputs: str
    body: str
    weights: Mapping[str, tuple[int, ...]]
    classes: int = 10


_BLOCK = """
  n = LayerNormalization<axis = -1>(x, g1, b1)
  q = MatMul(n, wq)  k = MatMul(n, wk)  v = MatMul(n, wv)
  heads = Constant<value = int64[4] {0, 0, 4, 16}>()
  qr = Reshape(q, heads)  kr = Reshape(k, heads)  vr = Reshape(v, heads)
  qt = Transpose<perm = [0, 2, 1, 3]>(qr)
  kt = Transpose<perm = [0, 2, 3, 1]>(kr)
  vt = Transpose<perm = [0, 2, 1, 3]>(vr)
  l = MatMul(qt, kt)
  scale = Constant<value = float {0.25}>()
  ls = Mul(l, scale)
  p = Softmax<axis = -1>(ls)
  o = MatMul(p, vt)
  ot = Transpose<perm = [0, 2, 1, 3]>(o)
  flat = Constant<value = int64[3] {0, 0, 64}>()
  or = Reshape(ot, flat)
  a = MatMul(or, wo)
  r = Add(x, a)
  m = LayerNormalization<axis = -1>(r, g2, b2)
  u = MatMul(m, w1)  ub = Add(u, c1)  h = Gelu(ub)  d = MatMul(h, w2)  db = Add(d, c2)
  s = Add(r, db)
  tokens = Constant<value = int64[1] {1}>()
  mean = ReduceMean<keepdims = 0>(s, tokens)
  y = MatMul(mean, wc)
"""

KINDS: dict[str, Kind] = {
    "mlp": Kind(
        "float[64,784] x",
        "float[64,10] y",
        "a = Gemm(x, w1, b1)  r = Relu(a)  b = Gemm(r, w2, b2)  s = Relu(b)  y = Gemm(s, w3, b3)",
        {"w1": (784, 256), "b1": (256,), "w2": (256, 256), "b2": (256,), "w3": (256, 10),
         "b3": (10,)},
    ),
    "cnn": Kind(
        "float[16,3,56,56] x",
        "float[16,10] y",
        """a = Conv<pads = [1, 1, 1, 1]>(x, w1)  n = BatchNormalization(a, g1, b1, m1, v1)
        r = Relu(n)  p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
        c = Conv<pads = [1, 1, 1, 1]>(p, w2)  k = BatchNormalization(c, g2, b2, m2, v2)
        s = Relu(k)  d = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(s, w3)  t = Relu(d)
        q = GlobalAveragePool(t)  f = Flatten(q)  y = Gemm(f, w4, b4)""",
        {"w1": (16, 3, 3, 3), "g1": (16,), "b1": (16,), "m1": (16,), "v1": (16,),
         "w2": (32, 16, 3, 3), "g2": (32,), "b2": (32,), "m2": (32,), "v2": (32,),
         "w3": (32, 32, 3, 3), "w4": (32, 10), "b4": (10,)},
    ),
    "block": Kind(
        "float[8,64,64] x",
        "float[8,10] y",
        _BLOCK,
        {"g1": (64,), "b1": (64,), "wq": (64, 64), "wk": (64, 64), "wv": (64, 64),
         "wo": (64, 64), "g2": (64,), "b2": (64,), "w1": (64, 256), "c1": (256,),
         "w2": (256, 64), "c2": (64,), "wc": (64, 10)},
    ),
    "lstm": Kind(
        "float[8,16,32] x",
        "float[16,10] y",
        """a, h, c = LSTM<hidden_size = 64>(x, w, r, b)
        axis = Constant<value = int64[1] {0}>()
        l = Squeeze(h, axis)  y = MatMul(l, wc)""",
        {"w": (1, 256, 32), "r": (1, 256, 64), "b": (1, 512), "wc": (64, 10)},
    ),
}  # fmt: skip
"""The four kinds of training.md, with those sizes."""


def built(kind: Kind) -> onnx.ModelProto:
    """The model of a kind, with random weights."""
    text = f'<ir_version: 9, opset_import: ["" : 20]> g ({kind.inputs}) => ({kind.outputs}) '
    model = onnx.parser.parse_model(f"{text}{{ {kind.body} }}")
    rng = np.random.default_rng(0)
    for name, shape in kind.weights.items():
        array = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)
        if name[0] in "gmv":  # scales and statistics of normalisations
            array = np.full(shape, 0.0 if name[0] == "m" else 1.0)
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    return model


def first_feeds(graph: TrainingGraph, kind: Kind) -> Arrays:
    """The inputs of the first step."""
    rng = np.random.default_rng(1)
    given: Arrays = {}
    for value in graph.model.graph.inputs:
        name = value.name or ""
        assert value.shape is not None
        shape = tuple(int(dim) for dim in value.shape.numpy())
        if value.const_value is not None:
            given[name] = value.const_value.numpy()
        elif name in graph.zeros:
            given[name] = np.zeros(tuple(map(literal, graph.zeros[name].shape)), np.float32)
        elif name in ("learning_rate", "step"):
            given[name] = np.asarray(RATE if name == "learning_rate" else 1.0, np.float32)
        elif name == "target":
            given[name] = rng.integers(0, kind.classes, shape)
        else:
            given[name] = rng.standard_normal(shape).astype(np.float32)
    return given


def train(runner: Any, graph: TrainingGraph, feeds: Arrays) -> tuple[list[float], Arrays]:
    """The losses of ten steps, and the state after them."""
    names = [value.name for value in runner.get_outputs()]
    feeds, losses = dict(feeds), []
    for number in range(STEPS):
        if "step" in feeds:
            feeds["step"] = np.asarray(number + 1, np.float32)
        found = dict(zip(names, runner.run(None, feeds), strict=True))
        losses.append(float(found["loss"]))
        feeds |= {old: found[new] for old, new in graph.updates.items()}
    return losses, {name: feeds[name] for name in graph.updates}


def difference(one: np.ndarray, other: np.ndarray) -> float:
    """The largest difference, as a share of the largest element."""
    scale = max(1e-3, float(np.abs(other).max(initial=0.0)))
    return float(np.abs(one - other).max(initial=0.0)) / scale


@dataclass(frozen=True)
class Row:
    """What became of one training step.

    Attributes:
        operators: before and after.
        kernels: of plans of the result, operator by operator and with generated kernels.
        times_us: best of a step before and after; equal where the file is the original.
        losses, state: largest differences over ten steps and after them.
        status: that of the report.
    """

    operators: tuple[int, int]
    kernels: tuple[int, int]
    times_us: tuple[float, float]
    losses: float
    state: float
    status: str


def compare(kind: Kind, optimizer: str, budget: float, race_s: float, *, tuned: bool) -> Row:
    """Optimise the training step of a kind and train with both."""
    graph = training_graph(built(kind), TrainingOptions(optimiser=optimizer))
    proto, feeds = model_proto(graph.model), first_feeds(graph, kind)
    with tempfile.TemporaryDirectory(prefix="training-") as scratch:
        before, after = Path(scratch) / "step.onnx", Path(scratch) / "fast.onnx"
        onnx.save(proto, before)
        inputs = {"learning_rate": f"constant({RATE})", "step": "constant(1)"}
        options = Options(
            budget_s=budget,
            threads=1,
            tuned=str(Path(scratch) / "tuned.onnx") if tuned else None,
            inputs={name: text for name, text in inputs.items() if name in feeds},
        )
        report = run(before, options, output=after).report
        fast = after if options.tuned is None else Path(options.tuned)
        runners = [session(str(path), threads=1) for path in (before, fast)]
        best = [float("inf")] * 2
        end = time.perf_counter() + race_s
        while time.perf_counter() < end or best[1] == float("inf"):
            for number, runner in enumerate(runners):
                start = time.perf_counter()
                runner.run(None, feeds)
                best[number] = min(best[number], (time.perf_counter() - start) * 1e6)
        if fast.read_bytes() == before.read_bytes():
            best = [min(best)] * 2
        (losses, state), (fast_losses, fast_state) = (train(r, graph, feeds) for r in runners)
        kernels = [
            len(plan_model(after, backend=backend).launches) for backend in ("numpy", "generated")
        ]
        return Row(
            (graph.nodes, len(onnx.load(after).graph.node)),
            (kernels[0], kernels[1]),
            (best[0], best[1]),
            losses=difference(np.asarray(fast_losses), np.asarray(losses)),
            state=max(difference(fast_state[name], state[name]) for name in state),
            status=report.status,
        )


@dataclass(frozen=True)
class PlannedStep:
    """What became of one training step on a device that is not here.

    Attributes:
        operators: those of the step.
        kernels: of its cheapest cover, and of the plan of the result.
        times_us: predicted, of both.
    """

    operators: int
    kernels: tuple[int, int]
    times_us: tuple[float, float]


def planned(kind: Kind, optimizer: str, budget: float, target: str) -> PlannedStep:
    """Plan the training step of a kind for a device."""
    graph = training_graph(built(kind), TrainingOptions(optimiser=optimizer))
    with tempfile.TemporaryDirectory(prefix="training-") as scratch:
        options = Options(
            target=target,
            budget_s=budget,
            check=0,
            store="",
            threads=1,
            plan=str(Path(scratch) / "step.plan.json"),
        )
        report = run(model_proto(graph.model), options).report
    assert report.planned is not None
    assert report.original_cost is not None
    return PlannedStep(
        graph.nodes,
        (round(report.metrics_before["launches"]), sum(report.planned.launches.values())),
        (report.original_cost, report.planned.predicted_us),
    )


def print_plans(
    kinds: Sequence[str], optimizer: str, budget: float, target: str, json_path: Path | None
) -> None:
    """Print the kernels of the training steps of some kinds on a device."""
    table = Rows("kind", "operators", "kernels", "of them", "µs", "ratio")
    found: dict[str, PlannedStep] = {}
    for name in kinds:
        with table.failure(name):
            row = found[name] = planned(KINDS[name], optimizer, budget, target)
            table.add(
                name,
                str(row.operators),
                f"{row.kernels[0]} → {row.kernels[1]}",
                f"{row.kernels[1] / row.kernels[0]:.2f}",
                f"{row.times_us[0]:.1f} → {row.times_us[1]:.1f}",
                f"{row.times_us[0] / row.times_us[1]:.2f}",
            )
    _write(found, json_path)


def _write(found: Mapping[str, Row] | Mapping[str, PlannedStep], path: Path | None) -> None:
    if path:
        text = json.dumps({key: asdict(one) for key, one in found.items()}, indent=1)
        path.write_text(text + "\n", encoding="utf-8")


app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def main(
    kinds: Annotated[list[str] | None, typer.Argument(help="Kinds; all by default.")] = None,
    optimizer: Annotated[str, typer.Option(help="sgd, momentum, adam or adamw.")] = "adam",
    budget: Annotated[float, typer.Option(help="Of an optimisation, seconds.")] = 60.0,
    race_s: Annotated[float, typer.Option(help="Interleaved runs of a step, seconds.")] = 15.0,
    tuned: Annotated[bool, typer.Option("--tuned", help="Run the form for this machine.")] = False,
    target: Annotated[str, typer.Option(help="A device that is not here; nothing runs.")] = "",
    json_path: Annotated[Path | None, typer.Option("--json", help="Write all figures.")] = None,
) -> None:
    """Compare the training steps of all kinds."""
    for name in kinds or ():
        if name not in KINDS:
            raise typer.BadParameter(f"there is no kind {name!r}; choose from {', '.join(KINDS)}")
    if target:
        print_plans(kinds or tuple(KINDS), optimizer, budget, target, json_path)
        return
    table = Rows("kind", "operators", "kernels", "µs", "ratio", "losses", "weights", "status")
    found: dict[str, Row] = {}
    for name in kinds or KINDS:
        with table.failure(name):
            row = compare(KINDS[name], optimizer, budget, race_s, tuned=tuned)
            found[name] = row
            table.add(
                name,
                f"{row.operators[0]} → {row.operators[1]}",
                f"{row.kernels[0]}, generated {row.kernels[1]}",
                f"{row.times_us[0]:.0f} → {row.times_us[1]:.0f}",
                f"{row.times_us[0] / row.times_us[1]:.3f}",
                f"{row.losses:.1e}",
                f"{row.state:.1e}",
                row.status,
            )
        _write(found, json_path)
    if any(max(row.losses, row.state) > CLOSE for row in found.values()):
        sys.exit(1)


if __name__ == "__main__":
    app()
