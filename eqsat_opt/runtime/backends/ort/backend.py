"""onnxruntime's CPU provider as a backend."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.onnx.kernel_export import export_kernel
from eqsat_opt.ir.values.forms import Form
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.backends.ort import NAME
from eqsat_opt.runtime.backends.ort.block import nchwc_block
from eqsat_opt.runtime.backends.ort.measuring import measure_kernel
from eqsat_opt.runtime.backends.ort.nchwc import between_reorders
from eqsat_opt.runtime.backends.ort.patterns import ort_patterns
from eqsat_opt.runtime.backends.ort.session import ort_version
from eqsat_opt.runtime.backends.protocol import (
    DEFAULT,
    CarriedForm,
    Implementation,
    KernelPattern,
    Offer,
)
from eqsat_opt.runtime.measure import Measurement

__all__ = ["BLOCKED", "OrtBackend"]


def _is_image(type_: TensorType) -> bool:
    return type_.rank == 4 and type_.dtype == "float32"


BLOCKED = CarriedForm(
    form=Form(NAME, "nchwc"),
    makers=frozenset({"Conv"}),
    keepers=frozenset(
        {"Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "MaxPool", "AveragePool", "Add", "Concat"}
    ),
    passers=frozenset({"Slice"}),
    holds=_is_image,
)
"""onnxruntime's blocked layout: channels in blocks of the vector width."""


class OrtBackend:
    """Backend of all operators in the registry, each in the one way that onnxruntime chooses."""

    name = NAME

    def version(self) -> str:
        """Return the version of the package."""
        return f"onnxruntime {ort_version()}"

    def patterns(self) -> Sequence[KernelPattern]:
        """Return the patterns that onnxruntime's graph optimiser fuses."""
        return ort_patterns()

    def carried(self) -> Sequence[CarriedForm]:
        """Return onnxruntime's blocked layout."""
        return (BLOCKED,)

    def implementations(self, kernel: Kernel) -> Sequence[Implementation]:
        """Return the default alone: onnxruntime decides which algorithm is fast."""
        del kernel
        return (DEFAULT,)

    def request(self, offer: Offer) -> bytes:
        """Serialise a model of one kernel, between conversions if it reads or writes blocks.

        Raises:
            EqsatError: ONNX cannot express the kernel.
        """
        body = offer.body
        model = export_kernel(body)
        forms = (body.writes, *(operand.form for operand in body.operands))
        block = nchwc_block() if BLOCKED.form in forms else 1
        if block == 1:
            return model
        surrounded = between_reorders(onnx.load_model_from_string(model), block)
        return bytes(surrounded.SerializeToString())

    def measure(self, request: bytes, threads: int, budget_s: float) -> Measurement:
        """Measure a kernel inside a session, in blocked layout if onnxruntime chooses that."""
        return measure_kernel(onnx.load_model_from_string(request), threads, budget_s=budget_s)
