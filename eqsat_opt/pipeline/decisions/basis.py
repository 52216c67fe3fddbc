"""The basis of decisions: the model, rules, options, libraries and processor they were made for."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version

from eqsat_opt import __version__
from eqsat_opt.common.paths import shown
from eqsat_opt.common.text import counted
from eqsat_opt.errors import OptionError
from eqsat_opt.extract.spec import limit_texts, objective_text
from eqsat_opt.pipeline.request import Request
from eqsat_opt.racing.earlier_result import rule_lines
from eqsat_opt.runtime.processor import device_fingerprint

__all__ = ["Basis", "basis_of", "require_same", "require_same_model", "require_threads"]

_LIBRARIES = ("ml_dtypes", "numpy", "onnx", "onnx-ir", "onnxruntime")
"""Libraries that fold constants, write models, or run what was measured."""

_AGAIN = "decide again with --save-decisions"


@dataclass(frozen=True)
class Basis:
    """The facts that decisions rest on, apart from the model.

    Attributes:
        versions: name of a library to its version.
        device: identifier of the processor, or the target if that is not here.
        device_name: the same for people.
        rules: digest of all rules that were allowed.
        options: name of an option of the command line to its value, for options that decide what
            a result may be.
    """

    versions: Mapping[str, str]
    device: str
    device_name: str
    rules: str
    options: Mapping[str, str]


def basis_of(request: Request) -> Basis:
    """Return the basis of decisions that are made here and now."""
    found = device_fingerprint()
    lines = "\n".join(rule_lines(request.rules))
    return Basis(
        versions={
            "eqsat-opt": __version__,
            "python": ".".join(platform.python_version_tuple()[:2]),
            **{name: version(name) for name in _LIBRARIES},
        },
        device=found.id if request.is_here else request.target,
        device_name=found.name if request.is_here else request.target,
        rules=hashlib.sha256(lines.encode()).hexdigest()[:32],
        options=dict(_options(request)),
    )


def _options(request: Request) -> Iterator[tuple[str, str]]:
    yield "numerics", request.numerics.name.lower()
    yield "precision", str(request.precision)
    yield "backends", ",".join(request.backends)
    yield "streams", str(request.streams)
    yield "max-error", f"{request.max_error:g}"
    yield "objective", objective_text(request.objective)
    yield "limit", ", ".join(limit_texts(request.objective))
    fixed = sorted(request.fixed.items())
    yield (
        "fix-shape",
        ", ".join(
            f"{name}:{size if isinstance(size, int) else ','.join(map(str, size))}"
            for name, size in fixed
        ),
    )


def require_same(decided: Basis, now: Basis, path: str) -> None:
    """Refuse decisions with another basis.

    Raises:
        OptionError: a library, the processor, an option or a rule differs; the message names it.
    """
    name = shown(path)
    for library in sorted(decided.versions.keys() | now.versions.keys()):
        before, here = decided.versions.get(library, "none"), now.versions.get(library, "none")
        if before != here:
            raise OptionError(
                f"{name} was decided with {library} {before}, and here is {here}; {_AGAIN}"
            )
    if decided.device != now.device:
        raise OptionError(
            f"{name} was decided for {decided.device_name}, and this is {now.device_name}; {_AGAIN}"
        )
    for option in sorted(decided.options.keys() | now.options.keys()):
        before, here = decided.options.get(option, ""), now.options.get(option, "")
        if before != here:
            had = f"with --{option} {before}" if before else f"without --{option}"
            has = here or "none"
            raise OptionError(f"{name} was decided {had}, and this run has {has}; give the same")
    if decided.rules != now.rules:
        raise OptionError(
            f"{name} was decided with other rules; give the same --rules, or {_AGAIN}"
        )


def require_threads(decided: int, now: int, path: str) -> None:
    """Refuse forms that were made for another number of threads.

    Raises:
        OptionError: the numbers differ.
    """
    if decided != now:
        raise OptionError(
            f"{shown(path)} was decided with {counted(decided, 'thread')}, and this run has {now}; "
            f"give --threads {decided} (threads={decided})"
        )


def require_same_model(decided: str, now: str, path: str) -> None:
    """Refuse decisions about another model.

    Raises:
        OptionError: the digests of the models differ.
    """
    if decided != now:
        raise OptionError(f"{shown(path)} is about another model, or about other weights; {_AGAIN}")
