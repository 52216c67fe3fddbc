"""Do two models compute the same? Outputs on random inputs, near-constant ones hide no error.

A network with random weights drifts to outputs that hardly depend on its input; an error relative
to their size then misses a dropped gate. The error here is relative to how much the output
*varies*, plus what rounding explains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.inputs import random_inputs
from eqsat_opt.runtime.ort import OrtOptions, OrtSession
from eqsat_opt.runtime.segments import cut_at_quantisations
from eqsat_opt.runtime.sizes import runnable_sizes
from eqsat_opt.runtime.source import Feeds, ModelSource, Runner

__all__ = ["TOLERANCES", "Difference", "Reference", "differences"]

TOLERANCES = {"bitexact": 1e-5, "reassociate": 1e-3, "refactor": 5e-3, "relaxed": 2e-2}
"""Error per standard deviation of the output that a numerics class may cause in float32."""

_ROUNDING = {"float64": 1e-12, "float32": 2e-5, "float16": 1e-2, "bfloat16": 5e-2}
"""Error relative to the largest element that rounding alone may cause after many layers."""

_INTEGER_MISMATCH = 1e-3
"""Share of integer or boolean elements (an argmax, say) that rounding may flip, unless bitexact."""


@dataclass(frozen=True)
class Difference:
    """One output, over all inputs tried.

    Attributes:
        name: of the output.
        max_abs: largest absolute difference.
        max_rel: largest difference beyond rounding, per standard deviation of the reference over
            its elements and all inputs.
        tolerance: what ``max_rel`` may be.
        why: what is wrong, empty if nothing is.
    """

    name: str
    max_abs: float
    max_rel: float
    tolerance: float
    why: str = ""


@dataclass(frozen=True)
class _Scale:
    """Largest magnitude of an output and how much it varies, over its elements and all inputs.

    A loss has one element, and on one input it may be zero by cancellation.
    """

    largest: float
    deviation: float

    @classmethod
    def of(cls, values: Sequence[Any]) -> _Scale:
        """The scale of one output; nothing for what is no floating-point tensor."""
        arrays = [v for v in values if isinstance(v, np.ndarray) and str(v.dtype) in _ROUNDING]
        flat = np.concatenate([np.zeros(0), *(v.ravel().astype(np.float64) for v in arrays)])
        flat = flat[np.isfinite(flat)]
        if not flat.size:
            return cls(0.0, 0.0)
        largest = float(np.max(np.abs(flat)))
        # One number alone says nothing of how it varies.
        return cls(largest, float(np.std(flat)) if flat.size > 1 else largest)


@dataclass(frozen=True)
class Reference:
    """Inputs and the outputs of the original, computed once.

    Attributes:
        names: of the outputs.
        feeds: inputs.
        outputs: for each.
        model: the original, to look between its quantisations; ``None`` for outputs alone.
    """

    names: tuple[str, ...]
    feeds: tuple[Feeds, ...]
    outputs: tuple[tuple[Any, ...], ...]
    model: ModelSource | None = None

    @classmethod
    def of(
        cls,
        model: ModelSource,
        options: OrtOptions,
        seeds: Sequence[int],
        dims: Mapping[str, int] | None = None,
    ) -> Reference:
        """Run the original on one random input per seed.

        Raises:
            RuntimeFailed: the original does not run.
        """
        session = OrtSession(model, options)
        given = dims or {}
        sizes = runnable_sizes(model, given)
        feeds = tuple(random_inputs(model, seed, sizes) for seed in seeds)
        try:
            outputs = tuple(tuple(session.run(feed)) for feed in feeds)
        except RuntimeFailed as error:
            assumed = ", ".join(f"{name}={sizes[name]}" for name in sizes if name not in given)
            if not assumed:
                raise
            raise RuntimeFailed(
                f"{error} (at assumed sizes {assumed}; give others with --input-shape)"
            ) from error
        return cls(tuple(session.output_names), feeds, outputs, model=model)


def _float_error(expected: Any, actual: Any, dtype: str, scale: _Scale) -> tuple[float, float]:
    wide, other = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(wide)
    if not np.array_equal(finite, np.isfinite(other)) or not np.array_equal(
        wide[~finite], other[~finite], equal_nan=True
    ):
        return np.inf, np.inf
    if not finite.any():
        return 0.0, 0.0
    error = float(np.max(np.abs(wide[finite] - other[finite])))
    beyond = max(0.0, error - _ROUNDING.get(dtype, 1e-5) * scale.largest)
    if beyond == 0.0:
        return error, 0.0
    return error, beyond / scale.deviation if scale.deviation > 0 else np.inf


def _compare(
    name: str, expected: Any, actual: Any, scale: _Scale, tolerance: float, exact: bool
) -> Difference:
    if not isinstance(expected, np.ndarray) or not isinstance(actual, np.ndarray):
        same = _same_structure(expected, actual)
        return Difference(
            name, 0.0, 0.0 if same else np.inf, tolerance, "" if same else "values differ"
        )
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        why = (
            f"{actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}"
        )
        return Difference(name, np.inf, np.inf, tolerance, why)
    if expected.size == 0:
        return Difference(name, 0.0, 0.0, tolerance)
    dtype = str(expected.dtype)
    if dtype in _ROUNDING:
        error, relative = _float_error(expected, actual, dtype, scale)
        tolerance *= {"float16": 30.0, "bfloat16": 200.0}.get(dtype, 1.0)
        why = "" if relative <= tolerance else "values differ"
        return Difference(name, error, relative, tolerance, why)
    wrong = float(np.mean(expected != actual))
    allowed = 0.0 if exact else _INTEGER_MISMATCH
    return Difference(
        name,
        wrong,
        wrong,
        allowed,
        "" if wrong <= allowed else f"{wrong:.2%} of the elements differ",
    )


def _same_structure(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_same_structure(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same_structure(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        return (
            bool(np.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True))
            if a.dtype.kind == "f"
            else bool(np.array_equal(a, b))
        )
    return bool(a == b)


def differences(
    reference: Reference, model: ModelSource, options: OrtOptions, numerics: str
) -> tuple[Difference, ...]:
    """Compare ``model`` with the reference, output by output.

    Where outputs differ and both models quantise, they are compared once more between their
    quantisations (:mod:`eqsat_opt.runtime.segments`), with the same tolerances. If all agrees
    there, what is left is floats that were rounded to the neighbouring step, and no error; the
    relative difference is then the largest between quantisations.

    Raises:
        RuntimeFailed: ``model`` does not run or has other outputs.
    """
    session = OrtSession(model, options)
    if tuple(session.output_names) != reference.names:
        raise RuntimeFailed(
            f"outputs are {list(session.output_names)} instead of {list(reference.names)}"
        )
    found = _differences(reference, session, numerics)
    if reference.model is None or not any(difference.why for difference in found):
        return found
    try:
        segments = cut_at_quantisations(reference.model, model, options)
        if segments is None:
            return found
        outputs = tuple(tuple(segments.original.run(feeds)) for feeds in reference.feeds)
        parts = Reference(tuple(segments.original.output_names), reference.feeds, outputs)
        between = _differences(parts, segments.other, numerics)
    except RuntimeFailed:
        return found
    return found if any(part.why for part in between) else _without_steps(found, between)


def _without_steps(
    found: Sequence[Difference], between: Sequence[Difference]
) -> tuple[Difference, ...]:
    """Differences that steps of a quantisation explain are none; other shapes and types are."""
    worst = max((part.max_rel for part in between), default=0.0)
    return tuple(
        replace(d, max_rel=min(d.max_rel, worst), why="") if np.isfinite(d.max_abs) else d
        for d in found
    )


def _differences(reference: Reference, session: Runner, numerics: str) -> tuple[Difference, ...]:
    tolerance, exact = TOLERANCES[numerics], numerics == "bitexact"
    scales = [_Scale.of(values) for values in zip(*reference.outputs, strict=True)]
    worst: dict[str, Difference] = {}
    for feeds, expected in zip(reference.feeds, reference.outputs, strict=True):
        results = zip(reference.names, expected, session.run(feeds), scales, strict=True)
        for name, left, right, scale in results:
            found = _compare(name, left, right, scale, tolerance, exact)
            known = worst.get(name)
            if known is None or (found.why, found.max_rel, found.max_abs) > (
                known.why,
                known.max_rel,
                known.max_abs,
            ):
                worst[name] = found
    return tuple(worst[name] for name in reference.names)
