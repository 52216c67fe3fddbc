"""Onnxruntime with our kernels, as a runtime of the graphs that use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat_opt.errors import ModelError, RuntimeFailed
from eqsat_opt.runtime.backends.native import NAME
from eqsat_opt.runtime.backends.native.library import (
    instructions,
    library_digest,
    missing,
    with_kernels,
)
from eqsat_opt.runtime.backends.native.region_library import with_regions
from eqsat_opt.runtime.backends.ort.block import nchwc_block
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, ort_version
from eqsat_opt.runtime.source import ModelSource, Runtime, Setting, read_structure

__all__ = ["NativeRuntime"]


class NativeRuntime(Runtime):
    """Runtime that runs a graph unchanged: it was optimised when it was made."""

    name = NAME

    def missing(self) -> str:
        """Return why there are no kernels here; empty if there are."""
        return missing()

    def facts(self) -> Mapping[str, str | int]:
        """Return versions and the block size, on which the graph depends.

        The graph has blocks of that size, and internal operators of onnxruntime, which change with
        its version.
        """
        return {
            "onnxruntime": ort_version(),
            "library": library_digest(),
            "instructions": instructions(),
            "block": nchwc_block(),
        }

    def open(
        self,
        model: ModelSource,
        threads: int,
        setting: Setting,
        custom_ops: Sequence[str] = (),
    ) -> OrtSession:
        """Open a session with our library, and with the kernels that the graph describes.

        Raises:
            RuntimeFailed: there are no kernels here, or onnxruntime refuses the model.
        """
        del setting
        options = with_kernels(OrtOptions(threads, custom_ops=tuple(custom_ops)))
        try:
            options = with_regions(options, read_structure(model).graph.node)
        except ModelError as error:
            raise RuntimeFailed(str(error)) from error
        return OrtSession(model, options)
