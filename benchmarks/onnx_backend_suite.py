"""Optimise, then run: ONNX's own backend test suite before and after `eqsat_opt`.

    python -m benchmarks.onnx_backend_suite [--sample N] [--json OUT]

A case counts if onnxruntime gives the expected outputs for the original model, at the suite's
tolerance. It then has to give them for three models: what `eqsat_opt.api.run` returns, the graph
that the search chose even where it equals the original, and the graph that is only normalised. So
every case goes through import, e-graph, extraction, raising and export, though most have nothing to
optimise.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner as SuiteRunner

from eqsat_opt.api import run
from eqsat_opt.common.files import write_whole
from eqsat_opt.errors import EqsatError
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.pipeline.options import Options
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession

__all__ = [
    "KINDS",
    "SEARCH_ONLY",
    "Case",
    "Verdict",
    "every_case",
    "judge",
    "sample",
]

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
"""Parts of the suite; the fifth, `real`, downloads its models."""

_IR_VERSION, _OPSET = 13, 26
"""The newest that onnxruntime reads; the suite stamps newer ones on models without need."""

SEARCH_ONLY = Options(store="", measure=False, race=False, check=0, alternatives=0, threads=1)
"""Analytic prices and no timing: the suite is about meaning."""

DataSet = tuple[Sequence[Any], Sequence[Any]]


@dataclass(frozen=True)
class Case:
    """One test of the suite.

    Attributes:
        data_sets: Inputs and expected outputs, in the order of the interface.
        rtol, atol: The suite's tolerance.
    """

    name: str
    kind: str
    model: onnx.ModelProto
    data_sets: Sequence[DataSet]
    rtol: float
    atol: float


@dataclass(frozen=True)
class Verdict:
    """What became of a case.

    Attributes:
        outcome: `passed`, `failed`, or `not run` where the original does not pass.
        reason: Why it did not pass; for a failed one with the model that it came from.
        status: What the report says: `unchanged`, or `unmeasured` for a result that did not race.
        seconds: For optimising.
    """

    name: str
    kind: str
    outcome: str
    reason: str = ""
    status: str = ""
    seconds: float = 0.0


# ** cases **


def every_case(kinds: Sequence[str] = KINDS) -> list[Case]:
    """All cases, sorted by kind and name."""
    cases = []
    for kind in kinds:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # some cases overflow on purpose while they are made
            found = sorted(load_model_tests(kind=kind), key=lambda case: case.name)
        for case in found:
            if case.model_dir is None:
                assert case.model is not None
                assert case.data_sets is not None
                model, data_sets = case.model, case.data_sets
            else:
                model = onnx.load(os.path.join(case.model_dir, "model.onnx"))
                data_sets = list(_stored_data_sets(Path(case.model_dir), model))
            cases.append(Case(case.name, kind, _restamped(model), data_sets, case.rtol, case.atol))
    return cases


def sample(cases: Sequence[Case], count: int) -> list[Case]:
    """`count` cases spread evenly over the list, so over all kinds; the same ones each time."""
    if count >= len(cases):
        return list(cases)
    return [cases[i * len(cases) // count] for i in range(count)]


def _restamped(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in versions that onnxruntime reads, where all its operators were the same then."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    result.ir_version = min(model.ir_version, _IR_VERSION)
    for opset in result.opset_import:
        if (
            opset.domain == ""
            and opset.version > _OPSET
            and all(
                onnx.defs.has(node.op_type)
                and onnx.defs.get_schema(node.op_type, opset.version).since_version <= _OPSET
                for node in _nodes(model.graph)
            )
        ):
            opset.version = _OPSET
    return result


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


def _stored_data_sets(folder: Path, model: onnx.ModelProto) -> Iterator[DataSet]:
    for stored in sorted(folder.glob("test_data_set_*")):
        inputs = [
            _stored_value(path, model.graph.input[i].type) for i, path in _numbered(stored, "input")
        ]
        outputs = [
            _stored_value(path, model.graph.output[i].type)
            for i, path in _numbered(stored, "output")
        ]
        yield inputs, outputs


def _numbered(folder: Path, what: str) -> list[tuple[int, Path]]:
    return sorted((int(path.stem.rpartition("_")[2]), path) for path in folder.glob(f"{what}_*.pb"))


def _stored_value(path: Path, type_: onnx.TypeProto) -> Any:
    data = path.read_bytes()
    match type_.WhichOneof("value"):
        case "sequence_type":
            return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
        case "optional_type":
            return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
        case _:
            return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def _value(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


# ** judging **


def _difference(model: onnx.ModelProto, case: Case) -> str:
    """Why onnxruntime does not give the expected outputs for `model`; empty if it does."""
    try:
        with np.errstate(all="ignore"):
            onnx.checker.check_model(model)
            session = OrtSession(model, OrtOptions(threads=1))
            for inputs, expected in case.data_sets:
                feeds = dict(zip(session.input_names, map(_value, inputs), strict=True))
                found = session.run(feeds)
                wanted = [_value(value) for value in expected]
                SuiteRunner.assert_similar_outputs(wanted, found, case.rtol, case.atol)
    except Exception as error:  # whatever a runtime or a comparison raises is the answer here
        return _one_line(error)
    return ""


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    name = "" if isinstance(error, EqsatError) else f"{type(error).__name__}: "
    return (name + text)[:300]


def judge(case: Case, options: Options = SEARCH_ONLY) -> Verdict:
    """Optimise one case and run what comes out."""

    def verdict(outcome: str, reason: str = "", status: str = "", seconds: float = 0.0) -> Verdict:
        return Verdict(case.name, case.kind, outcome, reason, status, seconds)

    if reason := _difference(case.model, case):
        return verdict("not run", reason)
    start = time.perf_counter()
    try:
        # What a runtime refuses once it is rebuilt is found out by the check.
        result = run(case.model, options)
        assert result.proposal is not None
        seconds = time.perf_counter() - start
        models = {
            "result": result.model,
            "chosen graph": model_proto(export_model(result.proposal.best)),
            "normalised graph": model_proto(export_model(result.proposal.original)),
        }
    except Exception as error:  # a crash is a failed case, with its name
        return verdict("failed", _one_line(error))
    status = result.report.status
    for label, model in models.items():
        if reason := _difference(model, case):
            return verdict("failed", f"{label}: {reason}", status, seconds)
    return verdict("passed", status=status, seconds=seconds)


# ** command **


def _print_table(verdicts: Sequence[Verdict]) -> None:
    outcomes = ("passed", "failed", "not run")
    print(f"\n{'kind':18s} {'cases':>9s}" + "".join(f" {o:>9s}" for o in (*outcomes, "changed")))
    for kind in KINDS:
        own = [v for v in verdicts if v.kind == kind]
        counts = Counter(v.outcome for v in own)
        changed = sum(v.status == "unmeasured" for v in own)
        numbers = (len(own), *(counts[o] for o in outcomes), changed)
        print(f"{kind:18s}" + "".join(f" {number:9d}" for number in numbers))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite and print what failed; the exit code says whether anything did."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--sample", type=int, default=0, metavar="N", help="only N cases, spread evenly"
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only cases with TEXT in their name"
    )
    parser.add_argument("--check", action="store_true", help="let `run` check its result as well")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all verdicts")
    given = parser.parse_args(arguments)

    start = time.perf_counter()
    cases = [case for case in every_case() if given.only in case.name]
    cases = sample(cases, given.sample) if given.sample else cases
    options = replace(SEARCH_ONLY, check=3, strict=True) if given.check else SEARCH_ONLY
    verdicts = []
    for number, case in enumerate(cases, start=1):
        verdicts.append(judge(case, options))
        if verdicts[-1].outcome == "failed":
            print(f"FAILED {case.kind} {case.name}: {verdicts[-1].reason}", flush=True)
        if sys.stderr.isatty():
            print(f"\r{number}/{len(cases)}", end="", file=sys.stderr, flush=True)
    seconds = time.perf_counter() - start

    _print_table(verdicts)
    optimising = sum(v.seconds for v in verdicts)
    print(f"{seconds:.0f} s in all, {optimising:.0f} s of them optimising")
    if given.json:
        text = json.dumps({"seconds": seconds, "verdicts": [asdict(v) for v in verdicts]}, indent=1)
        write_whole(given.json, text + "\n")
    return 1 if any(v.outcome == "failed" for v in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
