"""Onnxruntime with our kernels, as a runtime of the graphs that name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat_opt.errors import ModelError, RuntimeFailed
from eqsat_opt.runtime.backends.native.library import (
    instructions,
    library_digest,
    missing,
    with_kernels,
)
from eqsat_opt.runtime.backends.native.regions import with_regions
from eqsat_opt.runtime.backends.ort.block import nchwc_block
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, ort_version
from eqsat_opt.runtime.source import ModelSource, Setting, read_structure

__all__ = ["NativeRuntime"]


class NativeRuntime:
    """Runs a graph as it is: it was optimised when it was made."""

    name = "native"

    def missing(self) -> str:
        """Why there are no kernels."""
        return missing()

    def facts(self) -> Mapping[str, str | int]:
        """The graph has operators of onnxruntime's own, which change with it, and blocks."""
        return {
            "onnxruntime": ort_version(),
            "library": library_digest(),
            "instructions": instructions(),
            "block": nchwc_block(),
        }

    def settings(self, model: ModelSource, custom_ops: Sequence[str] = ()) -> Sequence[Setting]:
        """None: the graph says all."""
        del model, custom_ops
        return ()

    def open(
        self,
        model: ModelSource,
        threads: int,
        setting: Setting,
        custom_ops: Sequence[str] = (),
    ) -> OrtSession:
        """A session with the library of our kernels, and with those that the graph describes.

        Raises:
            RuntimeFailed: there are none, or onnxruntime refuses the model.
        """
        del setting
        options = with_kernels(OrtOptions(threads, custom_ops=tuple(custom_ops)))
        try:
            options = with_regions(options, read_structure(model).graph.node)
        except ModelError as error:
            raise RuntimeFailed(str(error)) from error
        return OrtSession(model, options)
