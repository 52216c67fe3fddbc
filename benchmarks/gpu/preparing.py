"""The step `prepare`: needs the whole package, and no GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.gpu.cases import operator_cases, probes
from benchmarks.gpu.kernels import alone, by_algorithm
from benchmarks.gpu.prepared import (
    KernelPlan,
    ModelPlan,
    Prepared,
    Scale,
    Way,
    model_of,
    write_prepared,
)
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.faults import Faults
from eqsat_opt.common.precision import Precision
from eqsat_opt.cost.on_device import plan_times_us
from eqsat_opt.cost.recorded import load_recorded
from eqsat_opt.errors import OptionError, PlanError
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.sizes.sizes import size_sets
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.forms.plan import device_drafts
from eqsat_opt.pipeline.optimise import optimise
from eqsat_opt.pipeline.options import Options
from eqsat_opt.pipeline.request import request_of
from eqsat_opt.pipeline.stages import Stages
from eqsat_opt.runtime.backends.cudnn import NAME as CUDNN
from eqsat_opt.runtime.backends.cudnn.launcher import site_of_launch
from eqsat_opt.runtime.backends.cudnn.oracle import recorded
from eqsat_opt.runtime.devices.profile import DeviceProfile, load_profile
from eqsat_opt.runtime.plan.files import plan_text, plan_to_json
from eqsat_opt.runtime.plan.plan import Launch, Plan
from eqsat_opt.runtime.plan.streams import makespan_us, schedule_of

__all__ = ["kernels_of", "prepare"]

STREAMS = 1, 2
_BUDGET_S = 60.0
"""Of the search for the plans of one model."""

_MOST_PLANS = 3
"""Of one model on the same number of streams."""

_MOST_TITLE = 60


def prepare(
    folder: Path,
    models: Sequence[str],
    target: str,
    *,
    scales: Sequence[Scale] = ("full", "tiny"),
    precision: Precision = Precision.STRICT,
) -> str:
    """Plan the models of the zoo for a device, and write what is to be looked at there.

    Args:
        folder: where to.
        models: names of the zoo; all if there are none.
        target: a device, by a profile that describes it to CUDA libraries.
        scales: of the models.
        precision: in which products and convolutions may be computed.

    Returns:
        What was written, in words.

    Raises:
        EqsatError: there is no such model or device, or the file cannot be written.
    """
    profile = load_profile(target)
    if profile.description is None:
        raise OptionError(f"nothing runs plans on {profile.title}; name a GPU as --target")
    plans: list[ModelPlan] = []
    for name in models or zoo.names():
        zoo.describe(name)  # a name that is none is not left out
        for scale in scales:
            try:
                found = list(_plans_of(name, scale, target, precision))
            except PlanError as error:
                print(f"{name}, {scale}: {error}", flush=True)
                continue
            plans += found
            print(f"{name}, {scale}: {'; '.join(one.title for one in found)}", flush=True)
    kernels = tuple(kernels_of(plans, profile))
    prepared = Prepared(
        profile.name,
        tuple(plans),
        kernels,
        cases=tuple(operator_cases(profile.name)),
        probes=probes(profile.name),
    )
    size = write_prepared(folder, prepared)
    return (
        f"{len(plans)} plans of {len({one.model for one in plans})} models, {len(kernels)} kernels "
        f"with {sum(len(one.ways) for one in kernels)} implementations, "
        f"{len(prepared.cases)} cases: {size} bytes"
    )


def _plans_of(name: str, scale: Scale, target: str, precision: Precision) -> Iterator[ModelPlan]:
    """The cheapest plans of a model, for one stream and for two; none twice."""
    model, profile, device = model_of(name, scale), load_profile(target), load_recorded(target)
    request = request_of(
        Options(
            target=target,
            precision=precision.value,
            effort="quick",
            check=0,
            store="",
            budget_s=_BUDGET_S,
        )
    )
    outcome = optimise(
        model,
        name,
        request,
        Stages(lambda stage, detail: None),
        deadline=Deadline.after(request.budget_s),
        faults=Faults(is_strict=True),
    )
    sizes = size_sets(import_model(outcome.loaded), [])[0]
    known: list[Plan] = []
    for streams in STREAMS:
        made = []
        for draft in device_drafts(outcome, model, replace(request, streams=streams), sizes):
            plan = replace(draft.plan, target=profile.name)  # which the package has
            if plan in known:
                continue
            known.append(plan)
            times, count = profile.launch_times_us(plan.launches), 0
            if device is not None and precision is Precision.STRICT:
                times, count = plan_times_us(device, plan)
            title = f"{draft.graph}, {streams} stream{'s' if streams > 1 else ''}"
            end_us = makespan_us(schedule_of(plan), times, profile.event_us.value)
            is_measured = count == len(plan.launches)
            document = plan_to_json(plan)
            made.append(ModelPlan(name, scale, title, document, end_us, is_measured))
        yield from sorted(made, key=lambda one: one.predicted_us)[:_MOST_PLANS]


def kernels_of(plans: Sequence[ModelPlan], profile: DeviceProfile) -> Iterator[KernelPlan]:
    """The kernels of the plans of full size, each once, with all ways to run it.

    Where there are plans of tiny models only, theirs.
    """
    found: dict[str, tuple[Launch, Plan]] = {}
    counts: dict[str, Counter[str]] = {}
    full = [entry for entry in plans if entry.scale == "full"]
    for entry in full or plans:
        for launch in entry.plan.launches:
            version = entry.plan.versions[launch.backend]
            one = alone(launch, entry.plan.buffer_of, entry.plan.target, version)
            key = plan_text(by_algorithm(one, "", 0))
            found.setdefault(key, (launch, one))
            counts.setdefault(key, Counter())[entry.model] += 1
    numbers: Counter[str] = Counter()
    for key, (launch, one) in found.items():
        numbers[launch.backend] += 1
        title = launch.body.name or "copy"
        yield KernelPlan(
            f"{launch.backend} {numbers[launch.backend]}: {title[:_MOST_TITLE]}",
            plan_to_json(one),
            tuple(_ways(launch, one, profile)),
            models=dict(counts[key]),
            bound_us=profile.load(launch.body, launch.algorithm).busy_us,
        )


def _ways(launch: Launch, one: Plan, profile: DeviceProfile) -> Iterator[Way]:
    """The way that was chosen, and the others that were recorded of its library."""
    chosen = Way(launch.algorithm, launch.workspace.size_bytes)
    yield chosen
    if launch.backend != CUDNN or profile.description is None:
        return
    (own,) = one.launches
    spec = site_of_launch(own, one.buffer_of).spec
    for choice in recorded(profile.description.architecture, spec.precision).get(spec.key, ()):
        way = Way(choice.name, choice.workspace_bytes)
        if way != chosen:
            yield way
