"""The public functions: optimise a model, explain what happened, compare two models.

Each stage is one function of a lower room; this module only puts them in order, decides what may be returned and
turns the outcome into a report.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, overload

import onnx
import onnx_ir

from eqsat_opt.cost.metrics import parse_objective
from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.cost.store import ProfileStore
from eqsat_opt.egraph import Budget
from eqsat_opt.errors import CheckFailed, ModelError, OptionError, RuntimeFailed
from eqsat_opt.explanation import Explanation
from eqsat_opt.extract import Objective
from eqsat_opt.ir.graph import Graph
from eqsat_opt.ir.onnx_export import export_model, model_proto
from eqsat_opt.ir.onnx_import import import_model
from eqsat_opt.ir.onnx_load import load_model
from eqsat_opt.ir.onnx_save import save_model
from eqsat_opt.ir.normalise import normalise
from eqsat_opt.options import Options
from eqsat_opt.report import Latency, OutputError, Report
from eqsat_opt.rules import Numerics, Rule, load_rules
from eqsat_opt.runtime.compare import Difference, Reference, differences
from eqsat_opt.runtime.ort import OrtOptions
from eqsat_opt.runtime.ort_config import ORT_CONFIG, level_in, level_metadata
from eqsat_opt.runtime.race import RaceResult, race
from eqsat_opt.runtime.source import ModelSource
from eqsat_opt.select import rules_used
from eqsat_opt.select.guilty import find_guilty
from eqsat_opt.select.pipeline import Plan, SearchOptions, make_plan
from eqsat_opt.select.why import kernel_uses, rewrites, rule_fates

__all__ = [
    "Difference", "RaceResult", "Result", "bench", "default_output", "explain", "optimize", "run",
]  # fmt: skip

AnyModel = str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model
Progress = Callable[[str, str], None]

_LARGE = 1 << 30
"""Models with more bytes of weights than this are compared and raced from files, with external data."""


_ALTERNATIVE = "alternative-"


@dataclass(frozen=True)
class Result:
    """The optimised model, or the original where nothing beat it.

    Attributes:
        model: in the form that was given; for a path, the path of what was written.
        report: all numbers.
        plan: the e-graph, candidates and choices, for a closer look; ``None`` where the search found nothing to do.
    """

    model: Any
    report: Report
    plan: Plan | None = field(default=None, repr=False, compare=False)


def _silent(_stage: str, _detail: str) -> None:
    pass


# ** sources **


def resolve(model: AnyModel) -> AnyModel:
    """``zoo:name`` builds a benchmark model; everything else stays what it is."""
    if isinstance(model, str) and model.startswith("zoo:"):
        from eqsat_opt import zoo

        name, _, scale = model.removeprefix("zoo:").partition("@")
        if scale not in ("", "full", "tiny"):
            raise OptionError(f"unknown scale {scale!r} in {model!r}; write zoo:{name} or zoo:{name}@tiny")
        return zoo.build(name, scale="tiny" if scale == "tiny" else "full")
    return model


class _Sources:
    """Gives the runtime models in a form that it can load: in memory, or files where weights are large."""

    def __init__(self, model: onnx_ir.Model, given: AnyModel) -> None:
        self._large = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value) > _LARGE
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._count = 0
        self.original: ModelSource
        if isinstance(given, onnx.ModelProto):
            self.original = given
        elif isinstance(given, onnx_ir.Model):
            self.original = self.of(given)
        else:
            self.original = os.fspath(given)

    def of(self, model: onnx_ir.Model) -> ModelSource:
        """A runnable form of ``model``."""
        if not self._large:
            return model_proto(model)
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="eqsat-")
        self._count += 1
        path = os.path.join(self._folder.name, f"{self._count}.onnx")
        save_model(model, path)
        return path

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()


# ** stages **


class _Stages:
    """Times the stages and tells the caller which one runs."""

    def __init__(self, progress: Progress) -> None:
        self.seconds: dict[str, float] = {}
        self.progress = progress

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self.progress(name, "")
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def _store(options: Options) -> ProfileStore | None:
    return None if options.store == "" else ProfileStore(options.store)


def _split_shapes(options: Options) -> tuple[dict[str, tuple[int, ...]], dict[str, int]]:
    shapes = {name: value for name, value in options.shapes.items() if isinstance(value, tuple)}
    dims = {name: value for name, value in options.shapes.items() if isinstance(value, int)}
    return shapes, dims


def _search_options(options: Options, dims: Mapping[str, int]) -> SearchOptions:
    return SearchOptions(
        Objective(parse_objective(options.objective)),
        Budget(nodes=options.nodes, time_s=max(1.0, options.budget_s / 3)),
        dims,
        measure=options.measure,
        alternatives=options.alternatives if options.race else 0,
        extraction_s=max(1.0, options.budget_s / 6),
        deadline_s=options.deadline_s,
        seed=options.seed,
    )


def _dims_of(graph: Graph, shapes: Mapping[str, tuple[int, ...]], dims: Mapping[str, int]) -> dict[str, int]:
    """Sizes of symbolic dimensions: the ones given, and those that given input shapes imply."""
    types = [type_ for type_ in (graph.tensor_type(name) for name in graph.inputs) if type_ is not None]
    symbols = {s for type_ in types for d in type_.shape if not isinstance(d, int) for m, _ in d.terms for s in m}
    for name in dims:
        if name not in symbols:
            known = ", ".join(sorted(symbols)) or "none"
            raise OptionError(f"no input of the model has a symbolic dimension {name!r}; there are: {known}")
    sizes = dict(dims)
    for name, shape in shapes.items():
        if name not in graph.inputs:
            raise OptionError(f"the model has no input {name!r}; its inputs are {', '.join(graph.inputs)}")
        type_ = graph.tensor_type(name)
        if type_ is None or type_.rank != len(shape):
            raise OptionError(f"input {name!r} is {graph.types[name]}, which does not fit the shape {list(shape)}")
        for dim, size in zip(type_.shape, shape, strict=True):
            if isinstance(dim, int) and dim != size:
                raise OptionError(f"input {name!r} is {type_}, which does not fit the shape {list(shape)}")
            if not isinstance(dim, int) and len(dim.terms) == 1 and dim.terms[0][1] == 1 and len(dim.terms[0][0]) == 1:
                sizes[dim.terms[0][0][0]] = size
    return sizes


def _entrants(plan: Plan, clean: Graph, imported: Graph) -> dict[str, Graph]:
    """Graphs that may beat the original; equal ones only once."""
    named = {"best": plan.best, "clean": plan.original}
    for i, other in enumerate(plan.alternatives, start=1):
        named[f"{_ALTERNATIVE}{i}"] = other
    changed = clean.operator_counts() != imported.operator_counts() or _constants_changed(clean, imported)
    seen: set[str] = set()
    kept = {}
    for name, graph in named.items():
        text = _structure(graph)
        is_new = rules_used(graph) or changed
        if text not in seen and is_new:
            kept[name] = graph
        seen.add(text)
    return kept


def _constants_changed(clean: Graph, imported: Graph) -> bool:
    digests = {c.digest for c in imported.constants.values()}
    return any(c.digest not in digests for c in clean.constants.values())


def _structure(graph: Graph) -> str:
    """A text that is equal for graphs that compute in the same way, whatever the names."""
    number = {name: f"i{i}" for i, name in enumerate(graph.inputs)}
    number.update({name: f"c{constant.digest}" for name, constant in graph.constants.items()})
    lines = []
    for i, node in enumerate(graph.nodes):
        lines.append(f"{node.op}{node.attrs}{[number.get(n, n) for n in node.inputs]}{node.name if node.payload else ''}")
        number.update({name: f"n{i}.{j}" for j, name in enumerate(node.outputs)})
    return "\n".join([*lines, *(number[name] for name in graph.outputs)])


def _check_entrants(
    reference: Reference, models: Mapping[str, ModelSource], options: Options, session: OrtOptions
) -> tuple[dict[str, tuple[Difference, ...]], dict[str, str]]:
    """Differences of each entrant; and why those that do not even run were dropped."""
    found: dict[str, tuple[Difference, ...]] = {}
    failed: dict[str, str] = {}
    for name, model in models.items():
        try:
            found[name] = differences(reference, model, session, options.numerics)
        except RuntimeFailed as error:
            failed[name] = str(error)
    return found, failed


def _accuse(
    graph: Graph, plan: Plan, rules: list[Rule], options: Options, search: SearchOptions, reference: Reference,
    sources: _Sources, session: OrtOptions,
) -> str:  # fmt: skip
    """Name the rule that made the outputs differ."""
    matched = {name.removesuffix("-reversed") for name in plan.saturation.report.matches}
    suspects = [rule for rule in rules if rule.name in matched]
    pricer = Pricer(None, options.threads)
    try:

        def is_wrong(subset: Any) -> bool:
            found = make_plan(graph, list(subset), pricer, SearchOptions(
                search.objective, search.budget, search.sizes, measure=False, alternatives=options.alternatives,
            ))  # fmt: skip
            for candidate in (found.best, *found.alternatives):
                model = sources.of(export_model(candidate))
                if any(d.why for d in differences(reference, model, session, options.numerics)):
                    return True
            return False

        guilty = find_guilty(suspects, is_wrong)
    finally:
        pricer.close()
    if guilty is None:
        used = ", ".join(rules_used(plan.best)) or "normalisation"
        return f"no single rule could be found guilty; involved: {used}"
    return f"rule {guilty.name} is guilty: {guilty}"


def _session_variants(graph: Graph) -> tuple[str, ...]:
    """Settings of the runtime's own optimiser that are worth racing: its fusions sometimes cost transformers time."""
    counts = graph.operator_counts()
    products = counts["MatMul"] + counts["LayerNormalization"]
    return ("basic",) if products > 4 * max(1, counts["Conv"]) else ()


def _race(
    models: Mapping[str, ModelSource], reference: Reference, graph: Graph, options: Options, session: OrtOptions
) -> RaceResult:
    entrants, settings = dict(models), dict.fromkeys(models, session)
    for level in _session_variants(graph):
        for name in ("original", "best", "clean"):
            if name in models:
                entrants[f"{name}@{level}"] = models[name]
                settings[f"{name}@{level}"] = OrtOptions(threads=options.threads, level=level)  # type: ignore[arg-type]
    return race(
        entrants, "original", reference.feeds[0], options=settings, seed=options.seed,
        time_limit_s=max(2.0, options.budget_s / 8),
    )  # fmt: skip


# ** optimise **


@dataclass(frozen=True)
class _Outcome:
    """The new model, ``None`` for the original, with its report."""

    model: onnx_ir.Model | None
    report: Report
    plan: Plan


def _optimise(given: AnyModel, name: str, options: Options, progress: Progress) -> tuple[onnx_ir.Model, _Outcome]:
    stages = _Stages(progress)
    rules = load_rules(options.rules, Numerics.parse(options.numerics))
    shapes, dims = _split_shapes(options)
    with stages("load"):
        model = load_model(given)
        imported = import_model(model)
        sizes = _dims_of(imported, shapes, dims)
        clean = normalise(imported, numerics=options.numerics)
    search = _search_options(options, sizes)
    session = OrtOptions(threads=options.threads)
    store = _store(options)
    pricer = Pricer(store, options.threads)
    sources = _Sources(model, given)
    notes: list[str] = []
    try:
        if search.measure and search.objective.weights.get("time_us"):
            with stages("calibrate"):
                pricer.calibrate()
        plan = make_plan(clean, rules, pricer, search, progress=progress)
        stages.seconds.update(plan.stages_s)
        entrants = _entrants(plan, clean, imported)
        with stages("export"):
            exported = {label: export_model(graph) for label, graph in entrants.items()}
        errors: tuple[OutputError, ...] = ()
        found: dict[str, tuple[Difference, ...]] = {}
        result: RaceResult | None = None
        winner = next(iter(entrants), "original")
        has_rivals = bool(entrants) or (options.race and bool(_session_variants(clean)))
        if has_rivals and (options.check or options.race):
            models = {label: sources.of(value) for label, value in exported.items()}
            with stages("check"):
                seeds = [options.seed + i for i in range(max(options.check, 1))]
                reference = Reference.of(sources.original, session, seeds, sizes)
                if options.check:
                    found, failed = _check_entrants(reference, models, options, session)
                    for label, why in failed.items():
                        notes.append(f"{label} was dropped: {why}")
                        del models[label]
                    for label, diffs in found.items():
                        if any(d.why for d in diffs):
                            _fail(clean, plan, rules, options, search, reference, sources, session, label, diffs)
            if options.race:
                with stages("race"):
                    result = _race({"original": sources.original, **models}, reference, clean, options, session)
                winner = result.winner
            else:
                winner = next(iter(models), "original")
        label, _, level = winner.partition("@")
        if label in found:
            errors = tuple(OutputError(d.name, d.max_abs, d.max_rel, d.tolerance) for d in found[label])
        chosen = None if label == "original" else exported[label]
        if level:
            chosen = model.clone() if chosen is None else chosen
            chosen.metadata_props[ORT_CONFIG] = level_metadata(level)
        raised = imported if label == "original" else entrants[label]
        settings = {"graph_optimization_level": level} if level else {}
        if settings:
            notes.append(
                f"the result won with onnxruntime's graph optimisation level {level!r}: set it in SessionOptions, or set "
                "ORT_LOAD_CONFIG_FROM_MODEL=1, which takes it from the model's metadata"
            )
        report = _report(
            name, plan, imported, raised, winner, result, errors, stages, pricer, options, settings, tuple(notes)
        )
    finally:
        pricer.close()
        sources.close()
        if store is not None:
            store.close()
    return model, _Outcome(chosen, report, plan)


def _fail(
    clean: Graph, plan: Plan, rules: list[Rule], options: Options, search: SearchOptions, reference: Reference,
    sources: _Sources, session: OrtOptions, label: str, diffs: tuple[Difference, ...],
) -> None:  # fmt: skip
    worst = next(d for d in diffs if d.why)
    accused = _accuse(clean, plan, rules, options, search, reference, sources, session)
    raise CheckFailed(
        f"output {worst.name!r} of candidate {label!r} differs from the original ({worst.why}; max abs "
        f"{worst.max_abs:.3g}, relative {worst.max_rel:.3g} > {worst.tolerance:.3g}); nothing is written; {accused}"
    )


def _report(
    name: str, plan: Plan, imported: Graph, raised: Graph, winner: str, result: RaceResult | None,
    errors: tuple[OutputError, ...], stages: _Stages, pricer: Pricer, options: Options, settings: Mapping[str, Any],
    notes: tuple[str, ...],
) -> Report:  # fmt: skip
    label = winner.partition("@")[0]
    latency: dict[str, Latency] = {}
    if result is not None:
        for role, entry in (("original", result.entries["original"]), ("result", result.entries[winner])):
            latency[role] = Latency(entry.time_us, entry.median_us, entry.spread)
    if winner == "original":
        status = "unchanged"
    elif result is None:
        status = "unmeasured"
    else:
        status = "improved"
    choice, egraph = plan.choice, plan.saturation.report
    after = choice.original_metrics
    if label == "best":
        after = choice.metrics
    elif label.startswith(_ALTERNATIVE):
        after = choice.alternative_metrics[int(label.removeprefix(_ALTERNATIVE)) - 1]
    return Report(
        model=name,
        status=status,
        winner=winner,
        operators_before=dict(sorted(imported.operator_counts().items())),
        operators_after=dict(sorted(raised.operator_counts().items())),
        metrics_before=dict(choice.original_metrics),
        metrics_after=dict(after),
        cost=choice.extraction.cost,
        original_cost=choice.original_cost,
        lower_bound=choice.extraction.lower_bound,
        gap=choice.extraction.gap,
        extraction_status=choice.extraction.status,
        enodes=egraph.enodes,
        eclasses=egraph.eclasses,
        enodes_loaded=egraph.enodes_loaded,
        iterations=egraph.iterations,
        stopped_by=egraph.stopped_by,
        rules=rules_used(raised),
        matches=dict(egraph.matches),
        latency=latency,
        race=result.to_json() if result is not None else {},
        noise=result.noise if result is not None else 0.0,
        threads=options.threads,
        kernels_measured=pricer.n_measured,
        kernels_unmeasured=choice.unmeasured,
        errors=errors,
        stages_s={key: round(value, 4) for key, value in stages.seconds.items()},
        session_options=dict(settings),
        notes=notes,
        objective=parse_objective(options.objective),
    )


def run(
    model: AnyModel,
    options: Options | None = None,
    *,
    output: str | os.PathLike[str] | None = None,
    progress: Progress = _silent,
) -> Result:
    """Optimise ``model`` and return everything that was found.

    Args:
        model: a path, ``zoo:NAME``, an ``onnx.ModelProto`` or an ``onnx_ir.Model``; it is never changed.
        options: all choices; defaults otherwise.
        output: where to write the result, whole or not at all. The original is written where nothing beat it.
        progress: called with a stage and a detail.

    Raises:
        ModelError: the model cannot be read or the result not be written.
        OptionError: an option has no meaning.
        CheckFailed: the result computes something else; nothing is written.
    """
    options = options or Options()
    given = resolve(model)
    name = os.fspath(model) if isinstance(model, (str, os.PathLike)) else "model"
    if output is not None:
        _check_writable(Path(output))
    loaded, outcome = _optimise(given, name, options, progress)
    chosen = outcome.model
    if output is not None:
        progress("write", os.fspath(output))
        start = time.perf_counter()
        save_model(loaded if chosen is None else chosen, output)
        outcome.report.stages_s["write"] = round(time.perf_counter() - start, 4)  # type: ignore[index]
        return Result(output, outcome.report, outcome.plan)
    if isinstance(given, onnx.ModelProto):
        return Result(given if chosen is None else model_proto(chosen), outcome.report, outcome.plan)
    if isinstance(given, onnx_ir.Model):
        return Result(given if chosen is None else chosen, outcome.report, outcome.plan)
    return Result(loaded if chosen is None else chosen, outcome.report, outcome.plan)


def _check_writable(path: Path) -> None:
    """Say so before the work begins, not after it."""
    if path.is_dir():
        raise ModelError(f"{path} is a folder; give a file name")
    if path.exists() and not path.is_file():
        raise ModelError(f"{path} is no ordinary file and would be replaced by one; give another name")
    if not path.parent.is_dir():
        raise ModelError(f"the folder {path.parent} does not exist; create it first")
    if not os.access(path.parent, os.W_OK):
        raise ModelError(f"no permission to write in {path.parent}; choose another folder with -o")


def default_output(model: str | os.PathLike[str]) -> str:
    """``NAME.opt.onnx`` beside the model; in the working directory for ``zoo:NAME``."""
    text = os.fspath(model)
    zoo_name = text.removeprefix("zoo:")
    stem = os.path.splitext(text)[0] if zoo_name == text else zoo_name.replace("@", "-")
    return f"{stem}.opt.onnx"


@overload
def optimize(model: onnx.ModelProto, **options: Any) -> onnx.ModelProto: ...
@overload
def optimize(model: onnx_ir.Model, **options: Any) -> onnx_ir.Model: ...
@overload
def optimize(model: str | os.PathLike[str], **options: Any) -> Any: ...
def optimize(model: AnyModel, *, report: bool = False, output: str | os.PathLike[str] | None = None, **options: Any) -> Any:
    """A faster model that computes the same, or the original where none is found.

    Args:
        model: a path, ``zoo:NAME``, an ``onnx.ModelProto`` or an ``onnx_ir.Model``; it is never changed.
        report: return a :class:`Result` with the report instead of the bare model.
        output: for a path, where to write; ``NAME.opt.onnx`` beside it otherwise.
        options: fields of :class:`~eqsat_opt.options.Options`; ``budget`` is short for ``budget_s``.

    Returns:
        What was given: a model of the same type, or for a path the path of the written file.

    Raises:
        ModelError, OptionError, CheckFailed: see :func:`run`.
    """
    if "budget" in options:
        options["budget_s"] = options.pop("budget")
    try:
        chosen = Options(**options)
    except TypeError as error:
        raise OptionError(f"{str(error).split(') ')[-1]}; see help(eqsat_opt.Options)") from None
    if output is None and isinstance(model, (str, os.PathLike)):
        beside = default_output(model)
        output = beside if isinstance(model, str) else Path(beside)
    result = run(model, chosen, output=output)
    return result if report else result.model


def bench(
    first: AnyModel, second: AnyModel, options: Options | None = None, *, time_limit_s: float = 30.0
) -> tuple[RaceResult, tuple[Difference, ...]]:
    """Race two models against each other and compare their outputs.

    Raises:
        ModelError: a model cannot be read.
        RuntimeFailed: a model does not run.
    """
    options = options or Options()
    shapes, dims = _split_shapes(options)
    sources: list[_Sources] = []
    for given in (resolve(first), resolve(second)):
        model = load_model(given)
        if not sources:
            dims = _dims_of(import_model(model), shapes, dims)
        sources.append(_Sources(model, given))
    session = OrtOptions(threads=options.threads)
    try:
        one, two = (source.original for source in sources)
        reference = Reference.of(one, session, [options.seed + i for i in range(max(1, options.check))], dims)
        found = differences(reference, two, session, options.numerics)
        entrants = {"original": one, "other": two}
        settings = {name: OrtOptions(options.threads, level_in(source)) for name, source in entrants.items()}
        result = race(
            entrants, "original", reference.feeds[0], options=settings, seed=options.seed, time_limit_s=time_limit_s,
        )  # fmt: skip
    finally:
        for source in sources:
            source.close()
    return result, found


def explain(model: AnyModel, options: Options | None = None, *, progress: Progress = _silent) -> Explanation:
    """Search without racing or writing: which rules fired, what was chosen at which price, and why not another.

    Raises:
        ModelError, OptionError: see :func:`run`.
    """
    chosen = replace(options or Options(), race=False, check=0)
    result = run(model, chosen, progress=progress)
    plan = result.plan
    assert plan is not None
    progress("explain", "")
    objective = Objective(parse_objective(chosen.objective))
    fates = rule_fates(plan, objective, time_limit_s=chosen.budget_s / 6, seed=chosen.seed)
    return Explanation(result.report, plan, fates, rewrites(plan.best), kernel_uses(plan))
