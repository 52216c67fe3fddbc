"""A model as it is read: its graph in normal form, the class that it admits, its sizes.

No If of the graph has a constant condition. A model with infinities of its own is not of the class
`finite`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial

import onnx_ir

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.faults import Faults
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import OptionError
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.graph.plain_names import axis_name
from eqsat_opt.ir.passes.conditions import import_decided
from eqsat_opt.ir.passes.finiteness import source_of_infinities
from eqsat_opt.ir.passes.fp16 import in_half
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.passes.recurrences.layers import with_layers
from eqsat_opt.ir.passes.recurrences.loop_layers import with_loop_layers
from eqsat_opt.ir.passes.recurrences.products import with_joint_products
from eqsat_opt.ir.sizes.sizes import Sizes, size_sets
from eqsat_opt.pipeline.request import Request, with_samples
from eqsat_opt.pipeline.stages import Stages
from eqsat_opt.pipeline.terms import TRYING
from eqsat_opt.runtime.backends.ort.acceptance import require_valid
from eqsat_opt.runtime.backends.sandbox import sandbox
from eqsat_opt.runtime.staging import Staging
from eqsat_opt.validation.found_sizes import SizeSearch, find_sizes, has_doubt

__all__ = ["ModelReading", "import_graph", "normalised", "read_model", "settled", "tried_sizes"]


def normalised(imported: Graph, request: Request) -> Graph:
    """Return the graph in normal form, in float16 if the request has that precision."""
    clean = normalise(imported, numerics=request.numerics)
    if request.numerics >= Numerics.REASSOCIATE:
        normal_form = partial(normalise, numerics=request.numerics)
        better = clean
        if request.runs_models:
            better = with_layers(with_loop_layers(better, normal_form))
        better = with_joint_products(better)
        clean = clean if better is clean else normal_form(better)
    return in_half(clean) if request.precision is Precision.FP16 else clean


def import_graph(model: onnx_ir.Model, request: Request, faults: Faults) -> tuple[Graph, Graph]:
    """Return the graph of a model and its normal form, in which no If has a constant condition."""

    def contained(imported: Graph) -> Graph | None:
        work = partial(normalised, imported, request)
        return faults.contain("normalise", work, "the model is searched as it is")

    imported, clean = import_decided(model, contained, exact=request.exact)
    return imported, imported if clean is None else clean


def settled(request: Request, graph: Graph) -> tuple[Request, tuple[str, ...]]:
    """Return the request for a graph in normal form, and a note if it is of a stricter class.

    Where all values are finite for finite inputs, ``finite`` promises all that ``reassociate``
    does. Elsewhere the user would lose that promise without being asked.
    """
    source = source_of_infinities(graph) if request.numerics is Numerics.FINITE else ""
    if not source:
        return request, ()
    strict = Numerics.REASSOCIATE
    rules = request.rules_of(strict) if request.rules else ()
    note = (
        f"numerics are reassociate, not finite: {source} may be infinite or no number; "
        "--numerics refactor allows what finite does, and more"
    )
    return replace(request, numerics=strict, rules=rules), (note,)


@dataclass(frozen=True, kw_only=True)
class ModelReading:
    """A model as it was read.

    Attributes:
        request: the user's choices, with the class of rules and the samples settled by the model.
        staging: the model as a file for sessions.
        lacking: the part of the model that the runtime lacks; empty if it lacks nothing.
        imported: the graph of the model.
        clean: the same graph in normal form.
        of_class: notes on the class of rules that the model admits.
        slowdown: seconds that pass for each second of computing on this machine.
    """

    request: Request
    staging: Staging
    lacking: str
    imported: Graph
    clean: Graph
    of_class: tuple[str, ...]
    slowdown: float


def read_model(
    model: onnx_ir.Model, staging: Staging, request: Request, *, deadline: Deadline, faults: Faults
) -> ModelReading:
    """Import a model and settle what the request leaves to it."""
    lacking = require_valid(staging.original, request.session, deadline)
    request.inputs.require_fit(staging.original)
    if request.calibration is not None:
        calibration = request.calibration.for_model(staging.original)
        request = with_samples(request, calibration.samples)
    began = time.perf_counter(), time.process_time()
    imported, clean = import_graph(model, request, faults)
    slowdown = _ratio(time.perf_counter() - began[0], time.process_time() - began[1])
    request, of_class = settled(request, clean)
    return ModelReading(
        request=request,
        staging=staging,
        lacking=lacking,
        imported=imported,
        clean=clean,
        of_class=of_class,
        slowdown=slowdown,
    )


def tried_sizes(reading: ModelReading, stages: Stages, deadline: Deadline) -> SizeSearch:
    """Return sizes of the inputs at which the model runs, tried where they are in doubt."""
    request = reading.request
    sizes = size_sets(reading.imported, request.shape_sets)
    _require_sizes(request, sizes[0])
    if not request.runs_models or not has_doubt(sizes) or reading.lacking:
        return SizeSearch(sizes)
    with stages("sizes"), sandbox() as box:
        return find_sizes(
            reading.staging.original,
            sizes,
            replace(request.session, level="disabled"),
            box=box,
            deadline=deadline.share(TRYING),
            inputs=request.inputs,
        )


def _ratio(wall_s: float, computing_s: float) -> float:
    """Return the seconds that passed for each second of computing, at least 1."""
    return max(1.0, wall_s / computing_s) if computing_s > 0 else 1.0


def _require_sizes(request: Request, sizes: Sizes) -> None:
    """Raise an error if a plan is requested and a size is not given.

    Raises:
        OptionError: a size is assumed.
    """
    if request.plan is not None and sizes.assumed:
        name = axis_name(min(sizes.assumed))
        raise OptionError(
            f"a plan is for fixed sizes; give {name!r} one with --input-shape {name}:SIZE"
        )
