"""Time and memory of the pipeline itself.

    python -m benchmarks.scale import  # import eqsat_opt against bare Python
    python -m benchmarks.scale stages  # load, saturate, freeze, extract of Inception-v3 and a
                                       # 200-layer BERT
    python -m benchmarks.scale memory  # peak memory on a 1.5 GB model with external data,
                                       # no check and no race
    python -m benchmarks.scale recurrent  # cost and bound of unrolled SRU and NasRNN at 5,000
                                          # e-nodes, 60 s for the search, prices by the roofline

Each figure is the best of several runs in fresh processes.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.isolated import fresh
from eqsat_opt import api
from eqsat_opt.api import resolve
from eqsat_opt.cost.operators import analytic_price
from eqsat_opt.egraph import saturate
from eqsat_opt.extract import Objective, extract
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.sizes.sizes import Sizes
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.options import Options
from eqsat_opt.proving.selection import default_rules
from eqsat_opt.runtime.backends.ort.backend import OrtBackend
from eqsat_opt.select import PricedCandidates, tile


def _stages(name: str) -> dict[str, Any]:
    """Seconds of each stage of one model, with prices by the roofline."""
    clock = time.perf_counter
    model = load_model(resolve(name))
    rules = default_rules()
    start = clock()
    graph = normalise(import_model(model))
    imported = clock() - start
    start = clock()
    found = saturate(graph, rules)
    saturated = clock() - start
    start = clock()
    backends = (OrtBackend(),)
    candidates = tile(found.eclasses, backends)
    classes = found.eclasses.term_class
    roots = tuple(dict.fromkeys(int(classes[found.lowered.value[name]]) for name in graph.outputs))
    sizes = Sizes.of(graph, {}).all
    priced = PricedCandidates.of(
        candidates, backends, roots, sizes=sizes, max_constant_bytes=1 << 30
    )
    full = priced.problem(lambda offer: analytic_price(offer.kernel))
    tiled = clock() - start
    start = clock()
    objective = Objective({"time_us": 1.0})
    answer = extract(full.problem, objective, time_limit_s=20, deterministic=False)
    return {
        "operators": len(graph.nodes),
        "enodes": found.report.enodes,
        "stopped_by": found.report.stopped_by,
        "import_s": imported,
        "load_saturate_freeze_s": saturated,
        "tile_s": tiled,
        "extract_s": clock() - start,
        "status": answer.status,
        "gap": answer.gap,
    }


def _peaks(source: str, target: str) -> tuple[int, int]:
    """Peak memory of the process before and after optimising without check and race, in kB."""
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    api.run(source, Options(check=0, race=False, measure=False, store=""), output=target)
    return base, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _best_time(code: str, runs: int) -> float:
    best = float("inf")
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        best = min(best, time.perf_counter() - start)
    return best


def measure_import(runs: int = 15) -> dict[str, float]:
    """Seconds of a bare interpreter and of one that imports the package."""
    bare, package = _best_time("pass", runs), _best_time("import eqsat_opt", runs)
    return {"bare_s": bare, "package_s": package, "above_bare_s": package - bare}


def measure_stages(runs: int = 3) -> dict[str, object]:
    """The fastest of several runs per model, by load + saturate + freeze."""
    result: dict[str, object] = {}
    for name in ("inception_v3", "bert_deep"):
        found = [fresh(_stages, f"zoo:{name}") for _ in range(runs)]
        result[name] = min(
            found, key=lambda item: item["load_saturate_freeze_s"] + item["extract_s"]
        )
    return result


def measure_memory(size_bytes: int) -> dict[str, float]:
    """Peak memory above the interpreter with all libraries loaded, relative to the model's size."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "large.onnx"), Path(folder, "large.opt.onnx")
        zoo.synthetic_large(source, bytes=size_bytes)
        base, peak = (kb * 1024 for kb in fresh(_peaks, str(source), str(target)))
    return {
        "model_bytes": size_bytes,
        "base_bytes": base,
        "peak_bytes": peak,
        "ratio": (peak - base) / size_bytes,
    }


def measure_recurrent(search_s: float = 60.0) -> dict[str, object]:
    """The models whose merged kernels pay only together, so that extraction is hard."""
    from eqsat_opt.lab import zoo

    result: dict[str, object] = {}
    for name in ("sru", "nasrnn"):
        # A sixth of the budget is for the search.
        options = Options(
            nodes=5_000, budget_s=6 * search_s, threads=1, measure=False, check=0, race=False
        )
        report = api.run(zoo.build(name), options).report
        result[name] = {
            "enodes": report.enodes,
            "stopped_by": report.stopped_by,
            "original_cost": report.original_cost,
            "cost": report.cost,
            "lower_bound": report.lower_bound,
            "gap": report.gap,
            "extract_s": report.stages_s["extract"],
        }
    return result


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["import", "stages", "memory", "recurrent"])
    parser.add_argument("--bytes", type=int, default=1_500_000_000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found: dict[str, object]
    if arguments.what == "import":
        found = dict(measure_import())
    elif arguments.what == "stages":
        found = measure_stages()
    elif arguments.what == "recurrent":
        found = measure_recurrent()
    else:
        found = dict(measure_memory(arguments.bytes))
    print(json.dumps(found, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
