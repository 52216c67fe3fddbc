"""Kernels of our own inside onnxruntime: layer by layer, model by model, and under sanitizers.

    python -m benchmarks.native layers                      # one convolution alone, each algorithm
    python -m benchmarks.native models [NAME …] [--threads 1] [--budget 90] [--batch 1]
    python -m benchmarks.native problem [NAME …]            # algorithms in the extraction problem
    python -m benchmarks.native threads [NAME …] [--budget 90]   # `models` at one and two threads
    python -m benchmarks.native errors [NAME …] [--seeds 20] [--budget 90]
    python -m benchmarks.native sanitize [--cases 300]      # address and undefined behaviour

A NAME is as in benchmarks/given.py: `bert`, `lstm:128`, `torch:resnet18`, `model.onnx`. With
`--batch 8` each model computes eight samples at once, where it does not hold the shape of one.
Every row is printed as soon as it is known, and a model that fails is a row with the reason.

`layers` runs hot: the weights lie in the caches, which they do not inside a deep model. Its table
says what an algorithm can do, and `models` what it does: the original, the portable result and the
tuned form race as in `eqsat-opt optimize --tuned`. Times are relative to onnxruntime's own; in the
column "of portable" the tuned form's is relative to the portable result's in the same race. The
column A/A is the relative difference of two sessions of the original, 15 % where there was time for
one of each only; in `layers` it is their ratio.
`problem` chooses from one e-graph with onnxruntime's kernels alone and with ours beside them, all
prices measured; seconds are those of the extraction. `errors` measures the tuned form on inputs
that the guard has not seen.
`sanitize` compiles the kernels anew, compares them with float64 on random shapes, as the tests do,
and runs the tests of generated kernels.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from rich.console import Console

from benchmarks.given import given, title
from benchmarks.rows import Rows, geometric_mean
from eqsat_opt import api
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.egraph import Budget
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.options import Options
from eqsat_opt.pipeline.prices import open_pricer
from eqsat_opt.pipeline.report.form_reports import Tuned
from eqsat_opt.pipeline.request import request_of
from eqsat_opt.runtime.backends.native.convolutions import convolutions
from eqsat_opt.runtime.backends.native.library import library_path
from eqsat_opt.runtime.backends.native.sites import with_names, with_ways
from eqsat_opt.runtime.backends.native.tuning import output_error
from eqsat_opt.runtime.backends.ort.block import nchwc_block
from eqsat_opt.runtime.backends.ort.profiling import node_times_us
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, ort_optimized
from eqsat_opt.runtime.backends.tuned_file import open_as_raced
from eqsat_opt.runtime.inputs import random_inputs
from eqsat_opt.select.proposal import SearchOptions, propose, repropose
from eqsat_opt.validation.compare import Reference

CNNS = ["alexnet", "inception_v3", "nasnet_a", "resnet50", "resnext50", "squeezenet", "vgg19"]

LAYERS = [
    (64, 112, (3, 3)), (64, 56, (3, 3)), (128, 28, (3, 3)), (256, 14, (3, 3)), (512, 7, (3, 3)),
    (48, 35, (5, 5)), (192, 17, (1, 7)), (192, 17, (7, 1)), (384, 8, (1, 3)), (384, 8, (3, 1)),
    (128, 22, (1, 5)), (128, 22, (5, 1)),
]  # fmt: skip
"""Channels, extent and kernel of convolutions in the zoo's models."""

_PROOF_S = 60.0
"""For an extraction whose prices are known."""

MODELS = [*CNNS, "bert", "bert_taso", "lora"]

_THREADS = 1, 2

_SEED = 1000
"""The first seed of inputs on which errors are measured; the guard begins at 0."""

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "eqsat_opt" / "runtime" / "backends" / "native" / "src"


def _layer(channels: int, extent: int, kernel: tuple[int, int]) -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((channels, channels, *kernel)) / np.sqrt(channels)
    pads = [(one - 1) // 2 for one in kernel] * 2
    shape = [1, channels, extent, extent]
    float32 = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=pads)],
        "layer",
        [helper.make_tensor_value_info("x", float32, shape)],
        [helper.make_tensor_value_info("y", float32, shape)],
        [numpy_helper.from_array(weights.astype(np.float32), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def layers(arguments: argparse.Namespace) -> None:
    """Each layer by each algorithm, relative to onnxruntime's kernel."""
    rows = Rows("layer", "onnxruntime, µs", "GF/s", "A/A", "relative times")
    block = nchwc_block()
    as_is = OrtOptions(1, "disabled", custom_ops=(library_path(),))
    for channels, extent, kernel in LAYERS:
        model = with_names(ort_optimized(_layer(channels, extent, kernel), OrtOptions(1)))
        (found,) = convolutions(model, block)
        x = np.random.default_rng(1).standard_normal((1, channels, extent, extent))
        feeds = {"x": x.astype(np.float32)}
        models = {
            "": model,
            "again": model,
            **{way.name: with_ways(model, [(found, way)]) for way in found.ways},
        }
        # Rounds of all, so that what disturbs one disturbs the others; the node alone is compared.
        times: dict[str, float] = dict.fromkeys(models, float("inf"))
        for _ in range(arguments.rounds):
            for name, one in models.items():
                spent = node_times_us(one, as_is, feeds, runs=12, deadline=Deadline.never())
                times[name] = min(times[name], spent[found.nodes[0]])
        own = times.pop("")
        again = times.pop("again") / own
        flops = 2 * channels * channels * kernel[0] * kernel[1] * extent * extent
        shown = ", ".join(f"{name} {spent / own:.2f}" for name, spent in times.items())
        layer = f"{kernel[0]}×{kernel[1]} {channels}@{extent}"
        rows.add(layer, f"{own:.0f}", f"{flops / own / 1e3:.0f}", f"{again:.2f}", shown)
    rows.show()


def _source(name: str, batch: int) -> onnx.ModelProto:
    model = given(name)
    return model if batch == 1 else _batched(model, batch)


def _batched(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """The model for several samples at once.

    Raises:
        EqsatError: it holds a shape of one sample.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    for value in inputs:
        value.type.tensor_type.shape.dim[0].dim_value = batch
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    OrtSession(model, OrtOptions(1)).run(random_inputs(model, 0))
    return model


def _tuned(name: str, folder: str, arguments: argparse.Namespace, **changes: Any) -> Tuned:
    """What tuning one model gave; the tuned form is `tuned.onnx` in the folder."""
    if "threads" not in changes:
        changes["threads"] = arguments.threads
    options = Options(budget_s=arguments.budget, tuned=str(Path(folder, "tuned.onnx")), **changes)
    source = _source(name, arguments.batch)
    tuned = api.run(source, options, output=Path(folder, "out.onnx")).report.tuned
    assert tuned is not None
    return tuned


def models(arguments: argparse.Namespace) -> None:
    """The race of each model."""
    rows = Rows("model", "ms", "portable", "tuned", "of portable", "A/A", "replaced", "error", "s")
    ratios = []
    for name in arguments.names or MODELS:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder, rows.failure(title(name)):
            tuned = _tuned(name, folder, arguments)
            seconds = time.perf_counter() - start
            if not tuned.race:
                rows.add(title(name), "", "", tuned.why, "", "", "", "", f"{seconds:.0f}")
                continue
            entries = tuned.race["entries"]
            ratio = 1 / tuned.speedup
            ratios.append(min(ratio, 1.0))
            portable = entries.get("portable", entries["original"])["ratio"]
            rows.add(
                title(name),
                f"{entries['original']['median_us'] / 1e3:.2f}",
                f"{portable:.2f}",
                f"{ratio:.2f}" + ("" if tuned.won else f" ({tuned.why})"),
                f"{ratio / portable:.2f}",
                f"{tuned.race['noise']:.1%}",
                f"{sum(tuned.algorithms.values())} of {tuned.n_sites}",
                f"{tuned.error:.0e}",
                f"{seconds:.0f}",
            )
    rows.show()
    if ratios:
        Console().print(f"geometric mean, capped at 1: {geometric_mean(ratios):.3f}")


def threads(arguments: argparse.Namespace) -> None:
    """The tuned form of each model at several numbers of threads, side by side."""
    columns = [text for n in _THREADS for text in (f"tuned at {n}", "A/A", "replaced")]
    rows = Rows("model", *columns)
    ratios: dict[int, list[float]] = {n: [] for n in _THREADS}
    for name in arguments.names or MODELS:
        row = [title(name)]
        with rows.failure(title(name)):
            for n in _THREADS:
                with tempfile.TemporaryDirectory() as folder:
                    tuned = _tuned(name, folder, arguments, threads=n)
                if not tuned.race:
                    row += ["", "", tuned.why]
                    continue
                ratio = 1 / tuned.speedup
                ratios[n].append(min(ratio, 1.0))
                replaced = f"{sum(tuned.algorithms.values())} of {tuned.n_sites}"
                row += [f"{ratio:.2f}", f"{tuned.race['noise']:.1%}", replaced]
            rows.add(*row)
    rows.show()
    for n, found in ratios.items():
        if found:
            Console().print(f"geometric mean at {n}, capped at 1: {geometric_mean(found):.3f}")


def errors(arguments: argparse.Namespace) -> None:
    """The largest error of each model's tuned form on inputs that the guard has not seen."""
    rows = Rows("model", "replaced", "in the guard", "worst", "of seeds")
    session = OrtOptions(arguments.threads)
    misses = []
    for name in arguments.names or zoo.names():
        with tempfile.TemporaryDirectory() as folder, rows.failure(title(name)):
            tuned = _tuned(name, folder, arguments, race=False, measure=False)
            if not tuned.won:
                rows.add(title(name), tuned.why)
                continue
            source = _source(name, arguments.batch)
            reference = Reference.of(source, session, range(_SEED, _SEED + arguments.seeds))
            opened = open_as_raced(Path(folder, "tuned.onnx"), session)
            found = [
                output_error(opened.run(feeds), outputs)
                for feeds, outputs in zip(reference.feeds, reference.outputs, strict=True)
            ]
            if max(found) > Options().max_error:
                misses.append(title(name))
            rows.add(
                title(name),
                f"{sum(tuned.algorithms.values())} of {tuned.n_sites}",
                f"{tuned.error:.1e}",
                f"{max(found):.1e}",
                f"{len(found)}",
            )
    rows.show()
    if misses:
        sys.exit(f"error above the bound: {', '.join(misses)}")


def problem(arguments: argparse.Namespace) -> None:
    """What further implementations cost the extraction, and what they promise."""
    rows = Rows("model", "rows", "cost, ms", "gap", "s", "rows", "cost, ms", "gap", "s", "ours")
    options = Options(threads=1, budget_s=arguments.budget)
    request = request_of(options)
    for name in arguments.names or CNNS:
        graph = normalise(import_model(load_model(given(name))))

        def search(measure: bool) -> SearchOptions:
            limit = Deadline.after(arguments.budget) if measure else Deadline.after(_PROOF_S)
            return SearchOptions(
                request.objective, Budget(), {}, measure=measure, alternatives=0, deadline=limit
            )

        with open_pricer(request) as own, open_pricer(request, "native") as both:
            both.calibrate()
            own.calibrate()
            proposal = propose(graph, request.rules, own, search(True))
            repropose(proposal, both, search(True), max_error=1e-4)
            # Again with the prices that are known now.
            columns = []
            for pricer in (own, both):
                start = time.perf_counter()
                _, choice = repropose(proposal, pricer, search(False), max_error=1e-4)
                found, n_rows = choice.extraction, len(choice.problem.problem.impl_cost)
                seconds = time.perf_counter() - start
                columns += [
                    f"{n_rows}",
                    f"{found.cost / 1e3:.2f}",
                    f"{found.gap:.2%}",
                    f"{seconds:.1f}",
                ]
            ours = sum(one.backend == "native" for one in choice.best.values())
        rows.add(title(name), *columns, f"{ours}, {choice.unmeasured} without a price")
    rows.show()


_PROGRAM = """
import sys
import numpy as np
from tests.conformance import test_native, test_native_groups, test_native_recurrences
from tests.conformance import test_native_rows, test_native_sequences
target, cases, rng = sys.argv[1], int(sys.argv[2]), np.random.default_rng(7)
def report(what, errors):
    print(f"{len(errors)} {what}, no finding; largest error {max(errors):.1e}")
drawn = [test_native.draw(rng) | {"block": 16} for _ in range(cases)]
report("convolutions", [test_native.error_of(one, target, rng) or 0.0 for one in drawn])
drawn = [test_native_groups.draw_grouped(rng) for _ in range(cases)]
drawn = [one for one in drawn if one["block"] == 16]
errors = [test_native_groups.grouped_error(one, target, rng) or 0.0 for one in drawn]
report("grouped convolutions", errors)
drawn = [test_native_rows.draw_normalization(rng) for _ in range(cases)]
report("normalizations", [test_native_rows.normalization_error(one, target, rng) for one in drawn])
drawn = [test_native_rows.draw_product(rng) for _ in range(cases)]
report("products", [test_native_rows.product_error(one, target, rng) for one in drawn])
drawn = [test_native_recurrences.draw_recurrence(rng) for _ in range(cases)]
errors = [test_native_recurrences.recurrence_error(one, target, rng) for one in drawn]
report("recurrent layers", errors)
drawn = [test_native_sequences.draw_sequence(rng) for _ in range(cases)]
errors = [test_native_sequences.sequence_error(one, target, rng) for one in drawn]
report("convolutions of sequences", errors)
"""

_TESTS = ["tests/conformance/test_generated.py", "tests/property/test_random_regions.py"]


def sanitize(arguments: argparse.Namespace) -> None:
    """Compile with sanitizers, and run random shapes; a finding ends the run with its report."""
    compiler = os.environ.get("CXX", "g++")
    checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    # Both before all else: onnxruntime throws exceptions, which the sanitizer has to know.
    preloaded = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so.6")
    ]
    with tempfile.TemporaryDirectory() as folder:
        target = str(Path(folder, "kernels.so"))
        # Instrumented functions are too large for some of the inlining that is demanded. A
        # report needs lines only; to follow variables too would take as long as all else.
        flags = ["-std=c++17", "-O2", "-g1", "-ffp-contract=fast", "-Wno-psabi", "-fPIC"]

        def compiled(source: Path) -> str:
            made = str(Path(folder, f"{source.stem}.o"))
            subprocess.run([compiler, *flags, *checks, "-c", source, "-o", made], check=True)
            return made

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compiled, sorted(SOURCES.glob("*.cpp"))))
        subprocess.run([compiler, "-shared", *checks, *objects, "-o", target], check=True)
        Console().print("compiled")
        environment = {
            **os.environ,
            "CXX": f"env LD_PRELOAD= {compiler} {' '.join(checks)}",
            "LD_PRELOAD": " ".join(preloaded),
            "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter keeps what it likes
        }
        for program in (
            ["-c", _PROGRAM, target, str(arguments.cases)],
            ["-m", "pytest", "-q", "-n", "0", "--capture=no", *_TESTS],
        ):
            done = subprocess.run(
                [sys.executable, *program], cwd=ROOT, env=environment, check=False
            )
            if done.returncode:
                sys.exit(done.returncode)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("layers", help="one convolution alone")
    one.add_argument("--rounds", type=int, default=5)
    one.set_defaults(call=layers)
    for call, text, default in (
        (models, "whole models", ", ".join(MODELS)),
        (threads, "whole models at one and two threads", ", ".join(MODELS)),
        (errors, "errors of whole models", "all of the zoo"),
    ):
        many = commands.add_parser(call.__name__, help=text)
        many.add_argument("names", nargs="*", help=f"of the zoo, or files; by default {default}")
        many.add_argument("--budget", type=float, default=90.0)
        many.add_argument("--batch", type=int, default=1, help="samples at once")
        if call is not threads:
            many.add_argument("--threads", type=int, default=1)
        if call is errors:
            many.add_argument("--seeds", type=int, default=20)
        many.set_defaults(call=call)
    both = commands.add_parser("problem", help="algorithms in the extraction problem")
    both.add_argument("names", nargs="*", help=f"names of the zoo; by default {', '.join(CNNS)}")
    both.add_argument("--budget", type=float, default=120.0, help="seconds of measuring")
    both.set_defaults(call=problem)
    checked = commands.add_parser("sanitize", help="under sanitizers")
    checked.add_argument("--cases", type=int, default=300)
    checked.set_defaults(call=sanitize)
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()
