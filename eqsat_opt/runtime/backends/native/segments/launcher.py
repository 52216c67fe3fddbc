"""Segments of a plan in which our own kernels run inside onnxruntime, in its layouts.

The algorithm of such a launch names the way of each site in the graph that onnxruntime optimises
here. The code that builds the tuned form also builds this graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx

from eqsat_opt.errors import EqsatError, RuntimeFailed
from eqsat_opt.runtime.backends.launching import Bound, Launcher
from eqsat_opt.runtime.backends.native.library import instructions, library_digest, with_kernels
from eqsat_opt.runtime.backends.native.region_library import with_regions
from eqsat_opt.runtime.backends.native.sites import with_names, with_ways
from eqsat_opt.runtime.backends.native.tuning import sites
from eqsat_opt.runtime.backends.ort.block import nchwc_block
from eqsat_opt.runtime.backends.ort.launcher import OrtLauncher, Segment, segment_model
from eqsat_opt.runtime.backends.ort.session import OrtOptions, ort_optimized, ort_version
from eqsat_opt.runtime.plan.plan import Buffer, Launch

__all__ = ["SegmentLauncher", "algorithm_of", "ways_of"]

_SEPARATOR, _REPEATED = "; ", " x "
"""Separators between runs of equal ways, and between the length of a run and the way's name."""

_OWN = "own"
"""Name of the way of a site that onnxruntime computes."""

_MOST_SITES = 100_000

_OPTIONS = OrtOptions(threads=1, spinning=False)


def algorithm_of(ways: Sequence[str]) -> str:
    """Return the text of the ways of all sites; an empty way is onnxruntime's own."""
    runs: list[tuple[int, str]] = []
    for way in ways:
        name = way or _OWN
        if runs and runs[-1][1] == name:
            runs[-1] = (runs[-1][0] + 1, name)
        else:
            runs.append((1, name))
    return _SEPARATOR.join(f"{count}{_REPEATED}{name}" for count, name in runs)


def ways_of(algorithm: str) -> tuple[str, ...]:
    """Parse the text of the ways of all sites.

    Raises:
        ValueError: the text is malformed, or has too many sites.
    """
    ways: list[str] = []
    for part in algorithm.split(_SEPARATOR):
        count, _, name = part.partition(_REPEATED)
        if not count.isascii() or not count.isdecimal() or not name:
            raise ValueError(algorithm)
        if len(ways) + int(count[:9]) > _MOST_SITES:
            raise ValueError(algorithm)
        ways += [name] * int(count)
    return tuple("" if name == _OWN else name for name in ways)


class SegmentLauncher(Launcher):
    """Launcher of sessions on one thread in which our kernels compute some nodes."""

    def __init__(self) -> None:
        self._plain = OrtLauncher()

    def version(self) -> str:
        """Return the versions that decide which sites there are, and how they are computed."""
        return (
            f"onnxruntime {ort_version()} with blocks of {nchwc_block()}, native "
            f"{library_digest() or 'not compiled'} {instructions()}"
        )

    def workspace_bytes(self, launch: Launch, buffers: Mapping[str, Buffer]) -> int:
        """Return the workspace that onnxruntime alone would need."""
        return self._plain.workspace_bytes(launch, buffers)

    def build(self, launch: Launch, bound: Bound) -> Segment:
        """Build the session on this memory.

        Raises:
            RuntimeFailed: there are no kernels, the algorithm is not for this body, or onnxruntime
                refuses it.
        """
        try:
            model, options = _built(launch, segment_model(launch, bound.reads))
            return Segment(launch, bound, model, options)
        except EqsatError as error:
            raise RuntimeFailed(f"launch {launch.name!r}: {error}") from error


def _built(launch: Launch, model: onnx.ModelProto) -> tuple[onnx.ModelProto, OrtOptions]:
    """Return the graph with its sites replaced, and the options to run it.

    Raises:
        RuntimeFailed: the algorithm is not for this graph.
    """
    options = with_kernels(_OPTIONS)
    optimized = with_names(ort_optimized(model, _OPTIONS))
    found = sites(optimized, options)
    try:
        ways = ways_of(launch.algorithm)
        chosen = [
            (site, next(one for one in site.ways if one.name == way))
            for site, way in zip(found, ways, strict=True)
            if way
        ]
    except (ValueError, StopIteration) as error:
        raise RuntimeFailed(
            f"the algorithm is not for the {len(found)} sites here; plan again"
        ) from error
    options = with_regions(options, (node for _, way in chosen for node in way.nodes))
    return with_ways(optimized, chosen), replace(options, data_folder="")
