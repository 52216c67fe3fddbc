"""The options of a user."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import OptionError
from eqsat_opt.runtime.backends.native import NAME as NATIVE
from eqsat_opt.runtime.backends.ort import NAME as ORT
from eqsat_opt.runtime.backends.registry import record_of
from eqsat_opt.runtime.devices import HOST
from eqsat_opt.runtime.processor import usable_cores

if TYPE_CHECKING:
    from eqsat_opt.approximation.quality import Judge

__all__ = ["Effort", "Options", "chosen_options"]

_NUMERICS = tuple(one.name.lower() for one in Numerics)
_APPROXIMATE, _DEFAULT = "approximate", "default"
"""Words in addition to the classes: low precision is permitted; the class is that of the target."""

Effort = Literal["quick", "normal", "max"]


@dataclass(frozen=True)
class _Defaults:
    """The defaults that an effort sets; the fields are explained in :class:`Options`."""

    budget_s: float
    measure: bool
    check: int
    race: bool
    alternatives: int
    gap: float


_EFFORTS: Mapping[str, _Defaults] = {
    "quick": _Defaults(2.0, measure=False, check=1, race=True, alternatives=0, gap=1e-2),
    "normal": _Defaults(30.0, measure=True, check=3, race=True, alternatives=2, gap=1e-2),
    "max": _Defaults(300.0, measure=True, check=3, race=True, alternatives=2, gap=0.0),
}
_STREAMS = 128
"""Largest number of streams; no device runs more kernels concurrently."""

_THREADS_PER_CORE = 16
"""Largest number of threads per usable core; with more a session takes seconds to start."""

_BY_EFFORT: Any = None
"""Placeholder in fields whose default depends on the effort; replaced in `__post_init__`."""


Shapes: TypeAlias = Mapping[str, tuple[int, ...] | int]
"""A mapping from input name to shape, or from symbolic dimension to size."""


def _wrong(name: str, value: object, wanted: str) -> OptionError:
    return OptionError(f"{name} is {value!r}; give {wanted}")


def _whole(name: str, value: object) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise _wrong(name, value, "a whole number")
    return int(value)


def _number(name: str, value: object) -> float:
    try:
        if isinstance(value, Real) and not isinstance(value, bool):
            return float(value)
    except OverflowError:  # an integer of more than 308 digits
        pass
    raise _wrong(name, value, "a number")


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong(name, value, "a text")
    return value


def _flag(name: str, value: object) -> bool:
    if type(value).__name__ != "bool":  # Python's own or NumPy's
        raise _wrong(name, value, "True or False")
    return bool(value)


def _path(name: str, value: object) -> str:
    if not isinstance(value, str | os.PathLike) or isinstance(path := os.fspath(value), bytes):
        raise _wrong(name, value, "a path")
    return path


def _paths(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str | os.PathLike):
        return (_path(name, value),)
    if not isinstance(value, Iterable):
        raise _wrong(name, value, "paths")
    # onnxruntime refuses an operator that is registered twice.
    return tuple(dict.fromkeys(_path(name, one) for one in value))


def _texts(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, Iterable):
        raise _wrong(name, value, "texts")
    return tuple(_text(name, one) for one in value)


def _aim(name: str, value: object) -> str | dict[str, float]:
    if isinstance(value, Mapping):
        return {_text(name, key): _number(f"{name}[{key!r}]", w) for key, w in value.items()}
    if not isinstance(value, str):
        raise _wrong(name, value, "an objective as a text, or a mapping from metrics to weights")
    return value


def _shapes(value: object) -> Shapes | tuple[Shapes, ...]:
    """Convert an option to one set of sizes or several.

    Raises:
        OptionError: it is neither a mapping nor a sequence of mappings, or a size is no count.
    """
    if isinstance(value, Mapping | None):
        return _shape_set(value or {})
    if isinstance(value, Sequence) and all(isinstance(one, Mapping) for one in value):
        return tuple(_shape_set(one) for one in value) or {}
    raise _wrong("shapes", value, "a mapping from names to sizes, or a list of them")


def _shape_set(value: Mapping[Any, object]) -> Shapes:
    shapes = {_text("a name in shapes", key): _sizes(key, one) for key, one in value.items()}
    for name, shape in shapes.items():
        if any(size < 0 for size in (shape if isinstance(shape, tuple) else (shape,))):
            raise OptionError(f"the size of {name!r} is negative; sizes are counts")
    return shapes


def _sizes(name: object, value: object) -> tuple[int, ...] | int:
    if isinstance(value, Iterable) and not isinstance(value, str):
        return tuple(_whole(f"the size of {name!r}", one) for one in value)
    return _whole(f"the size of {name!r}", value)


_KINDS: Mapping[str, Callable[[str, object], Any]] = {
    "bool": _flag,
    "float": _number,
    "int": _whole,
    "Sequence[str]": _texts,
    "Sequence[str] | None": lambda name, value: None if value is None else _texts(name, value),
    "str": _text,
    "str | Mapping[str, float]": _aim,
    "str | None": lambda name, value: None if value is None else _path(name, value),
    "tuple[str, ...]": _paths,
}
"""Converters of the values of fields, by the type that the field has in the source text."""


@dataclass(frozen=True)
class Options:
    """Options of an optimisation; every field has a sensible default.

    Attributes:
        objective: the objective to minimise: a metric (of :data:`eqsat_opt.cost.METRICS`: ``time``
            in µs, ``bytes`` and others), a weighted sum such as ``time+1e-6*flops``, with a
            critical path such as ``time+0.25*critical_path(time)``, a product such as
            ``time*bytes``, or a ratio such as ``bytes/flops``; or the weights of a sum, by metric.
            For a sum with time in it the race decides, otherwise the predicted cost.
        limits: limits that the result has to keep, as predicted: on totals (``bytes<=1e9``), on the
            critical path (``critical_path(time)<=500``), or on each kernel (``max(bytes)<=1e6``).
        target: ``cpu``, where kernels are measured and results raced; or a device that need not be
            part of this machine: the name of a profile, or a file with one. Its prices are
            analytic, and nothing is raced: the cheapest graph is written, and with ``plan`` planned
            for it.
        rules: ``default``, ``none``, families or names, ``-name`` to leave out, a rulebook file;
            comma separated.
        numerics: class of allowed differences in results: ``bitexact``, ``reassociate``,
            ``finite``, ``refactor`` or ``relaxed``; ``default`` is ``reassociate`` for this
            machine's processor and ``finite`` for another device. After a comma, or alone for the
            default, ``approximate`` permits products in low precision, within ``max_error`` on the
            data of ``calibration``.
        effort: how much time to spend, as defaults of ``budget_s``, ``measure``, ``check``,
            ``race``, ``alternatives`` and ``gap``, which may each be given as well. ``quick`` (2 s)
            never measures a kernel; ``normal`` (30 s) measures, and searches until a further gain
            would be too small for a race to show; ``max`` (300 s) spends the time left on proofs.
        budget_s: seconds for everything from loading to writing. Steps that cannot be stopped
            (loading, one run of the model, writing) may exceed it.
        shapes: input name to shape, or symbolic dimension to size, for models with symbolic shapes;
            or several such mappings, one for each set of sizes. Prices are those of the first set;
            a win must hold on every set. Sizes that are not given are assumed, and reported.
        fixed: symbolic dimension to size, or input to shape: sizes that become literals of the
            written model's interface. All values that follow from them are folded.
        threads: threads per session; 0 means all usable cores.
        nodes: limit on e-nodes.
        measure: whether kernels may be measured; otherwise the analytic bound prices them.
        check: number of random inputs on which original and result are compared; 0 trusts the
            rules.
        overwrite: whether the output may be the model itself.
        strict: whether a candidate that fails the check is an error; otherwise it is dropped with a
            warning, and the next one is tried.
        race: whether original and candidates run against each other at the end.
        alternatives: number of further candidates that join the race.
        gap: relative gap between the best graph and its bound at which the proof of optimality
            stops: prices are accurate to some percent, and a race shows no difference below 3 %.
        deadline_s: hard limit on saturation, kept by a child process; 0 means only the soft limits.
        seed: seed of random inputs, search and running order. The same seed, options and store give
            the same bytes, unless a time limit strikes or the race decides otherwise. The
            extraction chooses a graph by searches that are limited by counts. The parallel solver,
            which is limited by time, proves this choice, and replaces it only by a graph that is
            better by more than 0.05 %.
        store: path of the profile store; ``None`` is the user's, an empty string keeps nothing.
        custom_ops: libraries of operators of your own, which every session loads.
        backends: backends whose kernels may be chosen: ``ort``, which runs everything, and the
            names of further ones that are installed. With a plan also ``native``, ``generated``,
            ``numpy`` and ``openvino``, whose kernels are in the plan only.
        plan: file for a plan of the result: the backend, memory and order of its kernels, for the
            first set of sizes; ``None`` makes none. Only `optimize` makes it.
        tuned: file for the form of the result that runs fastest on this machine, with kernels of
            our own, settings of onnxruntime or another runtime; ``None`` makes none. If no such
            form gains, the portable result is written there. Only `optimize` makes it.
        runtimes: runtimes that may run the tuned form: ``ort``, which always may, ``openvino``, and
            the names of further ones; ``None`` is all that are installed.
        max_error: largest difference between the outputs of the tuned form and of the original, as
            a share of the maximum of each output; 0 allows no kernel that rounds differently. The
            same bound is that of low precision.
        quality: goal of low precision in place of that bound: ``top1>=0.99``, the share of rows
            whose largest element stays at its place, ``cosine>=0.999``, or a function of the
            outputs for one sample and those of the original that accepts them or not.
        calibration: data on which the errors of low precision are measured: a file ``.npz`` or a
            folder of such files, as for ``input_data``, or ``random`` for inputs that are drawn.
        energy_model: file with a model of energy (``static_w``, ``pj_per_flop`` by precision,
            ``pj_per_byte``, ``source``, ``of_algorithm``), in place of a meter or of a profile.
        streams: number of streams on which kernels could run concurrently. With several, the report
            has the longest chain of kernels and the simulated end of a schedule; no session does.
        precision: precision of a target that is a GPU: ``strict-fp32``; ``tf32``, in which
            libraries may round the factors of products and convolutions; ``fp16``, in which the
            result computes in float16 wherever it can, between inputs and outputs of the same
            types. Results and plans of different precisions never compete.
        decisions: file for the decisions of the run, from which ``replay`` makes the same result
            again, and its tuned form and plan; ``None`` writes none. An earlier result in the place
            of the output takes no part.
        replay: file of such decisions: the result is made of the model by them, without search or
            measurement, and so are ``tuned`` and ``plan``. They are neither checked nor raced
            unless ``check`` or ``race`` ask for it.
        certificate: file for the steps by which ``eqsat-opt certify`` confirms the result.
        input_data: your own inputs for check, race and sizes: a file ``.npz`` with arrays by the
            names of inputs, or a folder of such files, of which the first ``check`` are taken.
        inputs: name of an input to how it is drawn: ``int(0,30522)``, ``uniform(0,1)``,
            ``normal(0,1)``, ``constant(1)``, ``mask``, ``image(0,1)`` or ``audio``. Other inputs
            are drawn by what their names and uses tell.

    Raises:
        OptionError: a value has the wrong type or no meaning. Numbers of NumPy are numbers.
    """

    objective: str | Mapping[str, float] = "time"
    limits: Sequence[str] = ()
    target: str = HOST
    rules: str = "default"
    numerics: str = _DEFAULT
    effort: Effort = "normal"
    budget_s: float = _BY_EFFORT
    shapes: Shapes | Sequence[Shapes] = field(default_factory=dict)
    fixed: Shapes = field(default_factory=dict)
    threads: int = 0
    nodes: int = 20_000
    measure: bool = _BY_EFFORT
    check: int = _BY_EFFORT
    strict: bool = False
    overwrite: bool = False
    race: bool = _BY_EFFORT
    alternatives: int = _BY_EFFORT
    gap: float = _BY_EFFORT
    deadline_s: float = 0.0
    seed: int = 0
    store: str | None = None
    custom_ops: tuple[str, ...] = ()
    backends: Sequence[str] = (ORT,)
    plan: str | None = None
    tuned: str | None = None
    runtimes: Sequence[str] | None = None
    max_error: float = 1e-4
    quality: str | Judge | None = None
    calibration: str | None = None
    energy_model: str | None = None
    streams: int = 1
    precision: str = Precision.STRICT
    decisions: str | None = None
    replay: str | None = None
    certificate: str | None = None
    input_data: str | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if _text("effort", self.effort) not in _EFFORTS:
            raise OptionError(f"unknown effort {self.effort!r}; choose from {', '.join(_EFFORTS)}")
        defaults = _EFFORTS[self.effort]
        if self.replay is not None:
            defaults = replace(defaults, measure=False, check=0, race=False, alternatives=0)
        for each in fields(_Defaults):
            if getattr(self, each.name) is None:
                value = getattr(defaults, each.name)
                object.__setattr__(self, each.name, value)
        for option in fields(self):
            if (convert := _KINDS.get(str(option.type))) is not None:
                value = convert(option.name.removesuffix("_s"), getattr(self, option.name))
                object.__setattr__(self, option.name, value)
        object.__setattr__(self, "shapes", _shapes(self.shapes))
        if not isinstance(self.inputs, Mapping):
            raise _wrong("inputs", self.inputs, "a mapping from names to generators")
        for name, how in self.inputs.items():
            _text(f"the generator of {name!r}", how)
        if self.input_data is not None and any(self.shape_sets):
            raise OptionError(
                "the sizes are those of the data; leave out either --input-data (input_data=) or "
                "--input-shape (shapes=)"
            )
        if not isinstance(self.fixed, Mapping):
            raise _wrong("fixed", self.fixed, "a mapping from names to sizes")
        object.__setattr__(self, "fixed", _shapes(self.fixed))
        words = self._numerics_words
        classes = set(words) - {_APPROXIMATE}
        if len(classes) > 1 or not classes <= {*_NUMERICS, _DEFAULT}:
            raise OptionError(
                f"unknown numerics {self.numerics!r}; choose from {', '.join(_NUMERICS)}, alone or "
                f"with {_APPROXIMATE}, as in {_NUMERICS[1]},{_APPROXIMATE}"
            )
        self._require_approximable()
        object.__setattr__(self, "precision", Precision.parse(self.precision))
        if self.precision != Precision.STRICT and self.is_here:
            raise OptionError(
                f"the precision {self.precision} is for GPUs, and the target is {self.target}; "
                "give a GPU with --target, or leave --precision out"
            )
        if self.precision == Precision.FP16 and self.numerics_class is Numerics.BITEXACT:
            raise OptionError("fp16 is not bitexact; leave out --precision or --numerics")
        if self.tuned is not None and not self.is_here:
            raise OptionError(
                f"the tuned form is for this machine, and the target is {self.target}; leave out "
                "one of them"
            )
        if self.replay is not None and (self.decisions or self.certificate) is not None:
            raise OptionError(
                "a replay decides nothing; leave out --replay, --save-decisions or --certificate"
            )
        if not 0 < self.budget_s < math.inf:
            raise OptionError(
                f"the budget is {self.budget_s:g} s; give a positive number of seconds"
            )
        for name in ("threads", "check", "alternatives"):
            if getattr(self, name) < 0:
                raise OptionError(
                    f"{name} must not be negative but is {getattr(self, name)}; give 0 or more"
                )
        if not 0 <= self.gap < 1:
            raise OptionError(f"the gap is {self.gap:g}; give a share from 0 to below 1")
        if not 0 <= self.max_error < 1:
            raise OptionError(f"max_error is {self.max_error:g}; give a share from 0 to below 1")
        if not 1 <= self.streams <= _STREAMS:
            raise OptionError(f"streams is {self.streams}; give a number from 1 to {_STREAMS}")
        if self.seed < 0:
            raise OptionError(f"the seed is {self.seed}; give a number that is not negative")
        if not 0 <= self.deadline_s < math.inf:
            raise OptionError(f"the deadline is {self.deadline_s:g} s; give seconds, or 0 for none")
        if self.nodes < 1:
            raise OptionError(
                f"the limit of {self.nodes} e-nodes leaves no room; give a positive number"
            )
        if NATIVE in self.backends and self.plan is None:
            raise OptionError(
                "our own kernels stand in the form for this machine, not in the portable result; "
                f"leave {NATIVE} out of the backends and ask for that form with --tuned FILE "
                "(tuned=)"
            )
        if ORT not in self.backends and not self._plan_only:
            raise OptionError(
                f"the backends are {', '.join(self.backends) or 'none'}; add {ORT}, which runs "
                "what no other does"
            )
        # A plan may do without onnxruntime; the portable result cannot.
        first = (ORT,) if self.plan is None else ()
        object.__setattr__(self, "backends", tuple(dict.fromkeys((*first, *self.backends))))
        if self.backends != (ORT,) and not self.is_here:
            raise OptionError(
                f"the kernels of {self.target} are those of its profile; leave the backends out"
            )
        if self.runtimes is not None:
            object.__setattr__(self, "runtimes", tuple(dict.fromkeys((ORT, *self.runtimes))))
        if self.threads > (most := _THREADS_PER_CORE * usable_cores()):
            raise OptionError(
                f"{self.threads} threads are too many for {usable_cores()} usable cores; give at "
                f"most {most}, or 0 for one per core"
            )
        if self.threads == 0:
            object.__setattr__(self, "threads", usable_cores())

    @property
    def _numerics_words(self) -> list[str]:
        return [one.strip() for one in self.numerics.split(",")]

    @property
    def numerics_class(self) -> Numerics:
        """The class of allowed differences, without low precision."""
        named = [Numerics.parse(one) for one in self._numerics_words if one in _NUMERICS]
        return named[0] if named else Numerics.REASSOCIATE if self.is_here else Numerics.FINITE

    @property
    def is_approximate(self) -> bool:
        """Whether products may be computed in low precision."""
        return _APPROXIMATE in self._numerics_words

    def _require_approximable(self) -> None:
        """Refuse options that low precision contradicts.

        Raises:
            OptionError: data are missing, or a further form of the result is asked for.
        """
        if not self.is_approximate:
            for name in ("calibration", "quality"):
                if getattr(self, name) is not None:
                    raise OptionError(
                        f"{name} is for low precision; add --numerics approximate "
                        '(numerics="approximate"), or leave it out'
                    )
            return
        if self.quality is not None:
            from eqsat_opt.approximation.quality import parse_quality

            parse_quality(self.quality)
        if self.calibration is None:
            raise OptionError(
                "errors of low precision are measured on data; add --calibration FILE.npz, FOLDER "
                "or random (calibration=) to optimize"
            )
        if not self.is_here:
            raise OptionError(
                f"low precision is measured on this machine, and the target is {self.target}; "
                "leave out one of them"
            )
        for name in ("tuned", "plan", "decisions", "certificate", "replay"):
            if getattr(self, name) is not None:
                raise OptionError(
                    "low precision is in the portable result only; leave it out, or "
                    f"{name} ({name}=)"
                )

    @property
    def is_here(self) -> bool:
        """Whether the target is this machine's processor."""
        return self.target == HOST

    @property
    def portable_backends(self) -> tuple[str, ...]:
        """The backends whose kernels may be in a model; ``ort`` first."""
        left_out = {ORT, *self._plan_only}
        return (ORT, *(name for name in self.backends if name not in left_out))

    @property
    def _plan_only(self) -> tuple[str, ...]:
        """The backends whose kernels are in the plan only; none if no plan is made."""
        given = self.backends if self.plan is not None else ()
        return tuple(name for name in given if record_of(name).is_plan_only)

    @property
    def shape_sets(self) -> tuple[Shapes, ...]:
        """The sets of sizes in ``shapes``, one at least."""
        return (self.shapes,) if isinstance(self.shapes, Mapping) else tuple(self.shapes)


def chosen_options(options: Options | None, keywords: Mapping[str, Any]) -> Options:
    """Return options with some fields replaced by keywords; ``budget`` is short for ``budget_s``.

    Raises:
        OptionError: there is no such option, or its value has no meaning.
    """
    if not isinstance(options, Options | None):
        raise OptionError(f"options are {options!r}; give eqsat_opt.Options, or keywords")
    changes = {"budget_s" if name == "budget" else name: one for name, one in keywords.items()}
    if len(changes) < len(keywords):
        raise OptionError("budget and budget_s are the same; keep one")
    known = [option.name for option in fields(Options)]
    for name in changes:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise OptionError(f"unknown option {name!r}{hint}; see help(eqsat_opt.Options)")
    return Options(**changes) if options is None else replace(options, **changes)
