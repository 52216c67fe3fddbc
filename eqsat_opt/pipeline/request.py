"""The request: the user's options in resolved form, which every stage of the main job reads.

:class:`~eqsat_opt.pipeline.options.Options` hold texts and names as they were given. Here they
become an objective, rules, a class of numerics, a device; an option without a meaning is refused
before any work is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eqsat_opt.approximation.quality import Quality, parse_quality
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.common.precision import Precision
from eqsat_opt.cost.energy import MeteredEnergy, metered_energy
from eqsat_opt.cost.metrics import ENERGY, TIME, metric_name, peaks_capped, require_priced
from eqsat_opt.cost.pricing import PRECISION
from eqsat_opt.errors import OptionError
from eqsat_opt.extract import AnyObjective, parse_objective
from eqsat_opt.pipeline.device import TargetDevice, device_of, device_pricer
from eqsat_opt.pipeline.options import Options, Shapes
from eqsat_opt.proving.selection import load_rules
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.runtime.calibration import Calibration, load_calibration
from eqsat_opt.runtime.devices import HOST
from eqsat_opt.runtime.devices.energy import EnergyModel, load_energy_model
from eqsat_opt.runtime.generators import parse_generator
from eqsat_opt.runtime.given_inputs import GivenInputs, Sample, load_samples

if TYPE_CHECKING:
    from eqsat_opt.rules import Rule

__all__ = ["Request", "request_of", "with_samples"]


@dataclass(frozen=True)
class Request:
    """The user's choices in resolved form.

    Attributes:
        objective: the objective to minimise, with its limits; peaks are caps of kernels.
        rules: rules that may be applied, each of the class ``numerics`` or a stricter one.
        selection: the text that chose the rules, for the same choice under another class.
        numerics: class of allowed differences in results.
        precision: precision of a target that is a GPU.
        device: the device that the result is for; ``None`` is this machine's processor.
        energy: the source of energies of kernels; ``None`` where there is none.
        budget_s: seconds for everything from loading to writing.
        shape_sets: sizes of symbolic dimensions or shapes of inputs, one set at least.
        fixed: sizes that become literals of the written interface.
        threads: threads per session.
        nodes: limit on e-nodes.
        measure: whether kernels may be measured here.
        check: number of random inputs on which original and result are compared.
        strict: whether a failed check or an internal error is an error.
        overwrite: whether the output may replace the model.
        race: whether original and candidates race at the end.
        alternatives: number of further candidates that join the race.
        gap: share of the cost at which the proof of optimality may stop.
        saturation_limit_s: hard limit on saturation in seconds; 0 is none.
        seed: seed of random inputs, search and running order.
        store: path of the profile store; ``None`` is the user's, an empty one keeps nothing.
        custom_ops: libraries of the user's operators.
        backends: names of backends whose kernels may be in a plan.
        portable_backends: names of backends whose kernels may be in a model; ``ort`` first.
        plan: file of the plan; ``None`` makes none.
        tuned: file of the tuned form; ``None`` makes none.
        runtimes: names of runtimes that may run the tuned form; ``None`` is all that are installed.
        max_error: bound on the error of the tuned form and of plans, relative to the maximum of an
            output.
        quality: goal for the outputs of low precision; ``None`` for a bound on their error.
        calibration: data on which the errors of low precision are measured; ``None`` for floats.
        streams: number of streams on which kernels could run concurrently.
        decisions: file for the decisions of the run; ``None`` writes none.
        replay: file of decisions by which the result is made; ``None`` for a search.
        certificate: file for the certificate of the result; ``None`` writes none.
        inputs: samples and generators of the user.
    """

    objective: AnyObjective
    rules: Sequence[Rule]
    selection: str
    numerics: Numerics
    precision: Precision
    device: TargetDevice | None
    energy: EnergyModel | MeteredEnergy | None
    budget_s: float
    shape_sets: tuple[Shapes, ...]
    fixed: Shapes
    threads: int
    nodes: int
    measure: bool
    check: int
    strict: bool
    overwrite: bool
    race: bool
    alternatives: int
    gap: float
    saturation_limit_s: float
    seed: int
    store: str | None
    custom_ops: tuple[str, ...]
    backends: tuple[str, ...]
    portable_backends: tuple[str, ...]
    plan: str | None
    tuned: str | None
    runtimes: tuple[str, ...] | None
    max_error: float
    quality: Quality | None
    calibration: Calibration | None
    streams: int
    decisions: str | None
    replay: str | None
    certificate: str | None
    inputs: GivenInputs

    @property
    def is_here(self) -> bool:
        """Whether the result is for this machine's processor."""
        return self.device is None

    @property
    def is_recorded(self) -> bool:
        """Whether the result is for sessions of another processor, whose prices are recorded."""
        device = self.device
        return device is not None and bool(device.recorded) and device.profile.description is None

    @property
    def target(self) -> str:
        """The name of the device that the result is for."""
        return HOST if self.device is None else self.device.name

    @property
    def exact(self) -> bool:
        """Whether results must keep every bit."""
        return self.numerics is Numerics.BITEXACT

    @property
    def needs_edit(self) -> bool:
        """Whether it must be known how the result is made of the original."""
        return self.decisions is not None or self.certificate is not None

    @property
    def session(self) -> OrtOptions:
        """The options with which sessions are opened."""
        return OrtOptions(self.threads, custom_ops=self.custom_ops)

    @property
    def runs_models(self) -> bool:
        """Whether models are run, to be compared or to race."""
        return bool(self.check) or (self.race and self.is_here)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the inputs on which original and result are compared."""
        return tuple(self.seed + number for number in range(self.check))

    def rules_of(self, numerics: Numerics) -> Sequence[Rule]:
        """Return the rules of the user's selection under another class of numerics."""
        return load_rules(self.selection, numerics)


def request_of(options: Options, *, searches: bool = True) -> Request:
    """Resolve the user's options.

    Args:
        options: options with texts and names as they were given.
        searches: whether rules will be applied; otherwise none are loaded.

    Raises:
        OptionError: an option does not follow its grammar, has an unknown name, or needs something
            that the target does not have.
        RuleError: a rulebook cannot be read, or one of its rules is refuted.
    """
    numerics = options.numerics_class
    precision = Precision(options.precision)
    objective = peaks_capped(parse_objective(options.objective, options.limits, metric=metric_name))
    energy = _energy(options, objective)
    device = None if options.is_here else device_of(options.target)
    inputs = _inputs(options)
    _require_possible(objective, options.streams, device=device, energy=energy, precision=precision)
    return Request(
        objective=objective,
        rules=load_rules(options.rules, numerics) if searches else (),
        selection=options.rules,
        numerics=numerics,
        precision=precision,
        device=device,
        energy=energy,
        budget_s=options.budget_s,
        shape_sets=_shapes_of(inputs) or options.shape_sets,
        fixed=options.fixed,
        threads=options.threads,
        nodes=options.nodes,
        measure=options.measure,
        check=options.check,
        strict=options.strict,
        overwrite=options.overwrite,
        race=options.race,
        alternatives=options.alternatives,
        gap=options.gap,
        saturation_limit_s=options.deadline_s,
        seed=options.seed,
        store=options.store,
        custom_ops=options.custom_ops,
        backends=tuple(options.backends),
        portable_backends=options.portable_backends,
        plan=options.plan,
        tuned=options.tuned,
        runtimes=None if options.runtimes is None else tuple(options.runtimes),
        max_error=options.max_error,
        quality=None if options.quality is None else parse_quality(options.quality),
        calibration=(
            None if options.calibration is None else load_calibration(options.calibration)
        ),
        streams=options.streams,
        decisions=options.decisions,
        replay=options.replay,
        certificate=options.certificate,
        inputs=inputs,
    )


def _inputs(options: Options) -> GivenInputs:
    """Read the samples and generators of the user.

    Raises:
        OptionError: a file holds something else than arrays, or there is no such generator.
    """
    generators = {
        name: parse_generator(how, f"the input {name!r}") for name, how in options.inputs.items()
    }
    if options.input_data is None:
        return GivenInputs(generators=generators)
    return GivenInputs(load_samples(options.input_data, max(1, options.check)), generators)


_MOST_SETS = 3
"""Greatest number of sets of sizes that samples give, as each takes a race."""


def _shapes_of(inputs: GivenInputs) -> tuple[Shapes, ...]:
    """Return the shapes of samples, each set once; empty without samples."""
    found: list[Shapes] = []
    for sample in inputs.samples:
        if sample.shapes not in found:
            found.append(sample.shapes)
    return tuple(found[:_MOST_SETS])


def with_samples(request: Request, samples: Sequence[Sample]) -> Request:
    """Return a request that checks and races on samples, unless the user gave other data or sizes.

    Args:
        request: the request.
        samples: values of all inputs of the model; there may be none.
    """
    if not samples or request.inputs.samples or any(request.shape_sets):
        return request
    inputs = replace(request.inputs, samples=tuple(samples[: max(1, request.check)]))
    return replace(request, inputs=inputs, shape_sets=_shapes_of(inputs))


def _energy(options: Options, objective: AnyObjective) -> EnergyModel | MeteredEnergy | None:
    """Return the user's model of energy, or a meter where the objective needs one here.

    Raises:
        OptionError: the model cannot be used, or no meter of energy works here.
    """
    if options.energy_model is not None:
        model = load_energy_model(options.energy_model)
        model.require_precision(PRECISION)  # pricing would refuse it late
        return model
    return metered_energy() if options.is_here and objective.uses(ENERGY) else None


def _require_possible(
    objective: AnyObjective,
    streams: int,
    device: TargetDevice | None,
    energy: EnergyModel | MeteredEnergy | None,
    precision: Precision,
) -> None:
    """Refuse an objective that the target has no prices for, or streams that it does not have.

    Raises:
        OptionError: a metric has no price, or there are too few streams.
    """
    if device is None:
        require_priced(objective, (TIME,) if energy is None else (TIME, ENERGY))
        return
    require_priced(objective, device_pricer(device, energy, precision).metrics)
    most = int(device.profile.streams.value)
    if streams > most:
        raise OptionError(
            f"{device.profile.name} has streams up to {most}, not {streams}; give fewer"
        )
    if objective.needs_path and most == 1:
        raise OptionError(
            f"{device.profile.name} runs one kernel after another, so what takes time is the sum; "
            "leave the critical path out, or choose a target of several streams"
        )
