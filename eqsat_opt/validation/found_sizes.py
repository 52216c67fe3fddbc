"""The search for sizes at which the original runs, where the user did not give them all.

Assumed sizes satisfy the demands of a model's types. Further demands of computed shapes are found
by running the original, before anything is priced at impossible sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat_opt.common.deadline import Deadline, OutOfTime
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.graph.plain_names import axis_name
from eqsat_opt.ir.sizes.sizes import Sizes, other_sizes
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.runtime.backends.sandbox import Sandbox, SandboxSession
from eqsat_opt.runtime.given_inputs import NO_INPUTS, GivenInputs
from eqsat_opt.runtime.inputs import InputSpec, random_inputs, sizes_for
from eqsat_opt.runtime.source import ModelSource

__all__ = ["SizeSearch", "find_sizes", "has_doubt"]


@dataclass(frozen=True)
class SizeSearch:
    """Sizes at which the original runs, or its failure at those that were assumed first.

    Attributes:
        sets: sizes, one for each set that the user gave.
        failure: why the original runs at none that was tried, as a sentence; empty if it runs, or
            if there was no time to try.
    """

    sets: tuple[Sizes, ...]
    failure: str = ""


def has_doubt(sets: Sequence[Sizes]) -> bool:
    """Return whether assumed sizes may contradict the model in a way that types do not show.

    Sizes of batches hardly ever do.
    """
    return any(one.independent for one in sets)


def find_sizes(
    original: ModelSource,
    sets: Sequence[Sizes],
    options: OrtOptions,
    *,
    box: Sandbox,
    deadline: Deadline,
    inputs: GivenInputs = NO_INPUTS,
) -> SizeSearch:
    """Run the original at the assumed sizes, and at others until it runs.

    Args:
        original: the model as given.
        sets: sizes, one for each set that the user gave.
        options: options of sessions, in which nothing is optimised.
        box: sandbox that runs the original, as some kernels end their process at a bad size.
        deadline: end of the search; if it passes, the first assumptions stay.
        inputs: samples and generators of the user.
    """
    found: list[Sizes] = []
    try:
        box.wait(deadline)
        session = box.open(original, options, deadline)
        for sizes in sets:
            failures: list[str] = []
            for one in (sizes, *other_sizes(sizes)):
                failure = _failure(session, inputs.specs(original, one.derived), one)
                if not failure:
                    found.append(one)
                    break
                failures.append(failure)
            else:
                return SizeSearch(tuple(sets), _sentence(sizes, failures))
    except (OutOfTime, RuntimeFailed):  # the comparison reports the reason later
        return SizeSearch(tuple(sets))
    return SizeSearch(tuple(found))


def _failure(session: SandboxSession, specs: Sequence[InputSpec], sizes: Sizes) -> str:
    """Return why a model does not run at these sizes; empty if it does."""
    try:
        session.run(random_inputs(specs, 0, sizes_for(specs, sizes.inputs)))
    except RuntimeFailed as error:
        return str(error)
    return ""


def _sentence(sizes: Sizes, failures: Sequence[str]) -> str:
    names = ", ".join(f"{axis_name(name)}={size}" for name, size in sizes.assumed.items())
    example = axis_name(min(sizes.independent))
    return (
        f"the original runs at none of {len(failures)} sets of sizes that were assumed, so nothing "
        f"was tried; at {names} onnxruntime says: {failures[0]}; give sizes that belong together, "
        f"such as --input-shape {example}:SIZE"
    )
