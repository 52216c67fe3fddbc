"""Errors of implementations at their site, and the sensitivity of each output to each site.

Errors of sites are small, and hardly depend on each other: their variances add up at an output. So
an output moves by the sum, over sites, of a gain times the mean squared error at the site. Gains
are measured: the error of one implementation is added to the result of the site in a run of the
whole model (sensitivity by perturbation, as in Lin et al., 2016, and HAWQ, Dong et al., 2019).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir

from eqsat_opt.approximation.implementations import ProductImplementation
from eqsat_opt.approximation.rewriting import site_model, with_choice
from eqsat_opt.approximation.sites import ProductSite, find_sites
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.source import Feeds
from eqsat_opt.runtime.staging import Staging

__all__ = [
    "OutputShift",
    "Probe",
    "SiteErrors",
    "local_errors",
    "shift_of",
    "values_of",
]

_Array = npt.NDArray[Any]


@dataclass(frozen=True)
class OutputShift:
    """The distance of an output from that of the original.

    Attributes:
        largest: largest difference, as a share of the output's maximum.
        mean_square: mean squared difference, as a share of the squared maximum.
    """

    largest: float
    mean_square: float


@dataclass(frozen=True)
class SiteErrors:
    """The errors of a site's result, for each implementation that runs.

    Attributes:
        mean_square: name of an implementation to the mean squared error, over all samples.
        representative: name of the implementation whose differences are kept.
        differences: its differences from the result in floats, one array for each sample.
    """

    mean_square: Mapping[str, float]
    representative: str
    differences: tuple[_Array, ...]


def shift_of(found: Any, expected: Any) -> OutputShift:
    """Compare an output with the original's.

    Values that are no finite floats have to be equal; otherwise the shift is infinite.
    """
    endless = OutputShift(np.inf, np.inf)
    if not isinstance(found, np.ndarray) or not isinstance(expected, np.ndarray):
        return OutputShift(0.0, 0.0) if found == expected else endless
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return endless
    if found.dtype.kind != "f":
        return OutputShift(0.0, 0.0) if np.array_equal(found, expected) else endless
    finite = np.isfinite(expected)
    if not np.array_equal(found[~finite], expected[~finite], equal_nan=True):
        return endless
    if not np.isfinite(found[finite]).all():
        return endless
    reference = expected[finite].astype(np.float64)
    moved = found[finite].astype(np.float64) - reference
    largest = float(np.abs(reference).max(initial=0.0))
    distance = float(np.abs(moved).max(initial=0.0))
    if distance == 0.0:
        return OutputShift(0.0, 0.0)
    if largest == 0.0:
        return endless
    return OutputShift(distance / largest, float(np.mean(moved**2)) / largest**2)


def values_of(
    model: onnx_ir.Model,
    wanted: Collection[str],
    feeds: Sequence[Feeds],
    staging: Staging,
    options: OrtOptions,
) -> Iterator[dict[str, _Array]]:
    """Yield wanted values by name for one sample after the other.

    Args:
        model: the model.
        wanted: names of values of its main graph; those that are not there are left out.
        feeds: the samples, one at least.
        staging: stages models for sessions.
        options: options of the session.

    Raises:
        RuntimeFailed: the model does not run.
    """
    shown = model.clone()
    given = {value.name for value in shown.graph.inputs}
    there = {value.name for value in shown.graph.outputs}
    for node in shown.graph:
        for value in node.outputs:
            if value.name in set(wanted) - there - given:
                shown.graph.outputs.append(value)
    session = OrtSession(staging.of(shown), options)
    for fed in feeds:
        values = {**fed, **dict(zip(session.output_names, session.run(fed), strict=True))}
        yield {name: np.asarray(values[name]) for name in wanted if name in values}


def local_errors(
    site: ProductSite,
    rows: Sequence[_Array],
    implementations: Sequence[ProductImplementation],
    options: OrtOptions,
) -> SiteErrors | None:
    """Measure the error of each implementation at a site; ``None`` if none of them runs.

    Args:
        site: the site.
        rows: its rows, one array for each sample.
        implementations: the implementations; the first that runs is the representative.
        options: options of the sessions.
    """
    model = site_model(site)
    (name,) = (one.name for one in find_sites(model))
    exact = OrtSession(model_proto(model), options)
    expected = [exact.run({"rows": one})[0] for one in rows]
    squares: dict[str, float] = {}
    representative, differences = "", ()
    for implementation in implementations:
        try:
            session = OrtSession(model_proto(with_choice(model, {name: implementation})), options)
            moved = tuple(
                session.run({"rows": one})[0] - right
                for one, right in zip(rows, expected, strict=True)
            )
        except RuntimeFailed:
            continue
        square = float(np.mean([np.mean(one.astype(np.float64) ** 2) for one in moved]))
        if not np.isfinite(square):
            continue
        squares[implementation.name] = square
        if not representative:
            representative, differences = implementation.name, moved
    return SiteErrors(squares, representative, differences) if squares else None


class Probe:
    """A session of a model in which something can be added to some values.

    Attributes:
        run_s: seconds of one run.

    Raises:
        RuntimeFailed: the model does not run.
    """

    def __init__(
        self,
        model: onnx_ir.Model,
        names: Collection[str],
        feeds: Sequence[Feeds],
        staging: Staging,
        options: OrtOptions,
    ) -> None:
        given = {value.name for value in model.graph.inputs}
        self._inputs = {name: f"{name}/added" for name in names if name not in given}
        self._feeds = feeds
        self._session = OrtSession(staging.of(_with_additions(model, self._inputs)), options)
        nothing = dict.fromkeys(self._inputs.values(), np.zeros((), dtype=np.float32))
        self._nothing = nothing
        self._expected = [self._session.run({**fed, **nothing}) for fed in feeds]
        began = time.perf_counter()
        self._session.run({**feeds[0], **nothing})
        self.run_s = time.perf_counter() - began

    def shifts(self, name: str, differences: Sequence[_Array]) -> Iterator[tuple[OutputShift, ...]]:
        """Yield the shifts of all outputs for the first samples, one for each difference."""
        for number, added in enumerate(differences):
            fed = {**self._feeds[number], **self._nothing}
            if name in self._inputs:
                fed[self._inputs[name]] = added
            else:
                fed[name] = fed[name] + added
            found = self._session.run(fed)
            yield tuple(map(shift_of, found, self._expected[number]))


def _with_additions(model: onnx_ir.Model, inputs: Mapping[str, str]) -> onnx_ir.Model:
    result = model.clone()
    graph = result.graph
    graph.sort()
    for node in list(graph):
        for value in node.outputs:
            name = inputs.get(value.name or "")
            if name is None:
                continue
            added = onnx_ir.Value(name=name, type=onnx_ir.TensorType(onnx_ir.DataType.FLOAT))
            graph.inputs.append(added)
            total = onnx_ir.node("Add", [value, added], num_outputs=1)
            (moved,) = total.outputs
            moved.type, moved.shape = value.type, value.shape
            value.replace_all_uses_with(moved, replace_graph_outputs=True)
            total.replace_input_with(0, value)
            graph.insert_after(node, total)
            old, value.name = value.name, f"{value.name}/exact"
            moved.name = old
    return result
