"""How many spellings of fused operators are recognised, and by whom.

    python -m benchmarks.recognition              # the table: recognised, false, e-nodes, ms
    python -m benchmarks.recognition --check      # and every e-class checked numerically
    python -m benchmarks.recognition --peers      # and what onnxruntime and onnxscript fuse
    python -m benchmarks.recognition --exports F  # counts in the ONNX files of folder F instead

Times are those of the search alone: cutting windows, saturating them, reading out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from benchmarks.spellings import FAMILIES, Spelling, near_misses, spellings
from eqsat_opt.egraph.frozen import EClasses
from eqsat_opt.egraph.loading.lowering import lower
from eqsat_opt.egraph.recognition.readout import FUSED
from eqsat_opt.egraph.recognition.recognise import Recognition, recognise
from eqsat_opt.egraph.saturation.saturate import Budget, Saturation, saturate_windows
from eqsat_opt.egraph.terms import Lowered, TermNode
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.lab.testing.eclasses import check_eclasses
from eqsat_opt.proving.selection import default_rules
from eqsat_opt.rules import Numerics

__all__ = ["Outcome", "is_spelled", "search"]

PEERS: dict[str, tuple[str, ...]] = {
    "gelu": ("Gelu", "FastGelu", "QuickGelu", "BiasGelu"),
    "gelu-tanh": ("Gelu", "FastGelu", "BiasGelu"),
    "gelu-sigmoid": ("Gelu", "FastGelu", "QuickGelu"),
    "swish": ("QuickGelu", "Swish"),
    "hard-swish": ("HardSwish",),
    "layer-norm": ("LayerNormalization", "SkipLayerNormalization"),
    "rms-norm": ("SimplifiedLayerNormalization", "RMSNormalization"),
    "softmax": ("Softmax",),
    "attention": ("Attention", "MultiHeadAttention", "GroupQueryAttention", "SDPA"),
}
"""Operators by which other optimisers name a family."""


@dataclass
class Outcome:
    """What the search of one model found.

    Attributes:
        lowered: the model.
        found: the new terms and what they equal.
        saturations: the e-graph of its windows, if it has any.
        time_s: seconds.
    """

    lowered: Lowered
    found: Recognition
    saturations: list[Saturation] = field(default_factory=list)
    time_s: float = 0.0

    def operators(self) -> Iterable[tuple[int, TermNode]]:
        """Fused operators, each with the term of the model that it equals; -1 for none."""
        first = len(self.lowered.terms)
        equal = {planted: target for target, planted in self.found.equal}
        for number, term in enumerate(self.found.terms):
            if term.op in FUSED:
                yield equal.get(first + number, -1), term

    def type(self, number: int) -> TensorType:
        """The type of a term, the new ones included."""
        own = len(self.lowered.terms)
        term = self.lowered.terms[number] if number < own else self.found.terms[number - own]
        assert isinstance(term.type, TensorType)
        return term.type


def search(model: onnx.ModelProto | str, numerics: Numerics = Numerics.REASSOCIATE) -> Outcome:
    """Recognise fused operators in a model."""
    lowered = lower(normalise(import_model(load_model(model))))
    rules = default_rules(numerics)
    outcome = Outcome(lowered, Recognition())

    def saturated(windows: Lowered) -> EClasses:
        outcome.saturations.append(saturate_windows(windows, rules, Budget()))
        return outcome.saturations[-1].eclasses

    start = time.perf_counter()
    outcome.found = recognise(lowered, len(lowered.terms), saturated)
    outcome.time_s = time.perf_counter() - start
    return outcome


def is_spelled(spelling: Spelling, outcome: Outcome) -> bool:
    """Whether the search found the operator of ``spelling``, or of a near miss one of its."""
    output = outcome.lowered.value["y"]
    for target, term in outcome.operators():
        if term.op in spelling.op.split() and (spelling.anywhere or target == output):
            attrs: dict[str, object] = dict(term.attrs)
            if term.op in ("Attention", "MaskedAttention"):
                attrs["heads"] = outcome.type(term.children[1]).shape[1]
            if all(_is_close(attrs[key], value) for key, value in spelling.attrs.items()):
                return True
    return False


def _is_close(found: object, wanted: float | str) -> bool:
    if isinstance(wanted, str):
        return found == wanted
    return abs(float(str(found)) - wanted) <= 1e-5 * abs(wanted)


# Peers --------------------------------------------------------------------------------------------


def _by_onnxruntime(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnxruntime as ort

    with tempfile.TemporaryDirectory() as folder:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.optimized_model_filepath = str(Path(folder, "optimized.onnx"))
        options.log_severity_level = 3
        ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        return onnx.load(options.optimized_model_filepath)


def _by_onnxscript(model: onnx.ModelProto) -> onnx.ModelProto:
    import onnx_ir
    from onnxscript.rewriter.ort_fusions import optimize_for_ort

    converted = onnx_ir.serde.deserialize_model(model)
    result = optimize_for_ort(converted)
    optimized = result[0] if isinstance(result, tuple) else result
    proto: onnx.ModelProto = onnx_ir.serde.serialize_model(optimized)
    return proto


def _fuses(by: Callable[[onnx.ModelProto], onnx.ModelProto], spelling: Spelling) -> bool:
    """Whether a peer leaves an operator of the family that the model had not."""
    names = PEERS[spelling.family]
    before = {node.op_type for node in spelling.model.graph.node}
    try:
        after = by(spelling.model)
    except Exception:  # A peer that fails on a model fuses nothing in it.
        return False
    inside = [node.op_type for function in after.functions for node in function.node]
    found = {node.op_type for node in after.graph.node}.union(inside)
    return any(name in found and name not in before for name in names)


def _available_peers() -> dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]]:
    import importlib.util

    peers: dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
        "onnxruntime": _by_onnxruntime
    }
    if importlib.util.find_spec("onnxscript") is not None:
        peers["onnxscript"] = _by_onnxscript
    return peers


# Tables -------------------------------------------------------------------------------------------


def measure_family(family: str, *, check: bool, peers: bool) -> dict[str, object]:
    """One row of the table."""
    cases = spellings(family)
    wrong = [miss for miss in near_misses() if miss.family == family]
    hits, missed, bad, enodes, times, unsaturated = 0, [], 0, [], [], 0
    false: list[str] = []
    for case in [*cases, *wrong]:
        outcome = search(case.model)
        found = is_spelled(case, outcome)
        for saturation in outcome.saturations:
            unsaturated += saturation.report.stopped_by != "saturated"
            if check:
                bad += len(check_eclasses(saturation).bad)
        if case in wrong:
            false += [case.name] if found else []
            continue
        hits += found
        missed += [] if found else [case.name]
        times.append(1e3 * outcome.time_s)
        enodes.append(sum(s.report.enodes for s in outcome.saturations))
    row: dict[str, object] = {
        "family": family, "spellings": len(cases), "recognised": hits, "near_misses": len(wrong),
        "false_positives": len(false), "enodes_median": int(statistics.median(enodes)),
        "enodes_max": max(enodes), "ms_median": round(statistics.median(times), 1),
        "ms_max": round(max(times), 1), "not_saturated": unsaturated,
    }  # fmt: skip
    if check:
        row["bad_classes"] = bad
    if peers:
        for name, by in _available_peers().items():
            row[name] = sum(_fuses(by, case) for case in cases)
    if missed or false:
        row["examples"] = [*missed[:5], *(f"false: {name}" for name in false[:5])]
    return row


def measure_exports(folder: Path, numerics: Numerics) -> list[dict[str, object]]:
    """What is recognised in each ONNX file of a folder, beside what it names itself."""
    rows = []
    for path in sorted(folder.glob("*.onnx")):
        outcome = search(str(path), numerics)
        own = Counter(term.op for term in outcome.lowered.terms if term.op in FUSED)
        found = Counter(term.op for _, term in outcome.operators())
        rows.append(
            {
                "file": path.name, "terms": len(outcome.lowered.terms), "own": dict(own),
                "recognised": dict(sorted(found.items())), "windows": outcome.found.fragments,
                "enodes": outcome.found.enodes, "ms": round(1e3 * outcome.time_s, 1),
            }
        )  # fmt: skip
    return rows


def _print(rows: list[dict[str, object]]) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * len(columns))
    for row in rows:
        print("| " + " | ".join(str(row.get(key, "")) for key in columns) + " |", flush=True)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--families", nargs="*", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--check", action="store_true", help="check every e-class numerically")
    parser.add_argument("--peers", action="store_true", help="ask other optimisers as well")
    parser.add_argument("--exports", type=Path, help="a folder of ONNX files")
    parser.add_argument(
        "--numerics",
        default="reassociate",
        choices=[kind.name.lower() for kind in Numerics],
        help="class of the rules that --exports allows",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    if arguments.exports and not any(arguments.exports.glob("*.onnx")):
        parser.error(f"{arguments.exports} holds no .onnx file; give the folder of the exports")
    if arguments.exports:
        rows = measure_exports(arguments.exports, Numerics.parse(arguments.numerics))
    else:
        rows = [
            measure_family(family, check=arguments.check, peers=arguments.peers)
            for family in arguments.families
        ]
    if arguments.json:
        print(json.dumps(rows, indent=1))
    else:
        _print(rows)


if __name__ == "__main__":
    main()
