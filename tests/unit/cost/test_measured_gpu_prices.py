"""Prices of kernels that were measured on a GPU, as an extraction asks for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.gpu.timing import Timed
from eqsat_opt.common.precision import Precision
from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.cost.on_device import MeasuredPricer, is_measured_gpu
from eqsat_opt.cost.profile import ProfileKey, ProfileRow
from eqsat_opt.cost.quotes import Quote
from eqsat_opt.cost.recorded import (
    RecordedDevice,
    recorded_from_json,
    recorded_to_json,
)
from eqsat_opt.ir.graph.commuted_kernels import commuted_key
from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.values.forms import Form
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.backends.cudnn.oracle import CudnnChoice, recorded
from eqsat_opt.runtime.backends.cudnn.spec import CudnnSpec, spec_from_json
from eqsat_opt.runtime.backends.gpu import device_backend
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.runtime.devices.profile import load_profile
from eqsat_opt.runtime.measure import PROTOCOL_VERSION


def convolution() -> tuple[Kernel, CudnnSpec, Sequence[CudnnChoice]]:
    """A convolution for which cuDNN has several engines."""
    spec, choices = next(
        (spec, choices)
        for key, choices in recorded("sm_90").items()
        if len(choices) > 2 and isinstance(spec := spec_from_json(json.loads(key)), CudnnSpec)
        if not spec.epilogue and spec.precision is Precision.STRICT
    )
    attrs = attributes(
        strides=spec.strides, pads=spec.pads, dilations=spec.dilations, group=spec.groups
    )
    x, w = (TensorType(spec.dtype, one.dims) for one in (spec.x, spec.w))
    operands = Operand(x, False), Operand(w, True)
    return Kernel(operands, (Step("Conv", attrs, (0, 1)),), (2,)), spec, choices


def test_engines_compete_by_what_was_measured() -> None:
    kernel, _, choices = convolution()
    profile = load_profile("h200")
    usual = ProfilePricer(profile, backend=device_backend(profile))
    (first,) = usual.backends[0].implementations(kernel)
    assert first.algorithm == f"cudnn {choices[0].name}"
    times = {choices[0].name: 9.0, choices[2].name: 5.0}
    rows = tuple(
        ProfileRow(
            ProfileKey(
                "cudnn 91900", kernel.signature, name, "gpu",
                threads=1, protocol=PROTOCOL_VERSION, forms=first.forms,
            ),
            Timed((time_us,)).measurement,
            "2026-01-01T00:00:00+00:00",
        )
        for name, time_us in times.items()
    )  # fmt: skip
    device = RecordedDevice(profile, rows)
    assert is_measured_gpu(device)
    pricer = MeasuredPricer(recorded_from_json(json.loads(json.dumps(recorded_to_json(device)))))
    offers = [Offer(kernel, "gpu", one) for one in pricer.backends[0].implementations(kernel)]
    quotes = {one.implementation.algorithm: pricer.price(one) for one in offers}
    assert {name: quote.time_us for name, quote in quotes.items()} == {
        f"cudnn {name}": time_us for name, time_us in times.items()
    }
    assert {quote.source for quote in quotes.values()} == {"recorded"}
    assert [one.implementation.workspace_bytes for one in offers] == [
        one.workspace_bytes for one in choices if one.name in times
    ]
    bare = MeasuredPricer(replace(device, rows=()))
    (way,) = bare.backends[0].implementations(kernel)
    assert bare.price(Offer(kernel, "gpu", way)) == usual.price(Offer(kernel, "gpu", first))


def test_what_was_measured_in_plain_forms_prices_kernels_of_an_extraction() -> None:
    """These say no forms; and they read what is added in whatever order they find it."""
    image, plain = TensorType("float32", (1, 4, 5, 5)), Form("cuda")
    x, y, z = (Operand(image, const) for const in (False, False, True))
    product = Step("Mul", (), (0, 1)), Step("Add", (), (3, 2))
    measured = Kernel((x, y, z), product, (4,))
    asked = Kernel((z, x, y), (Step("Mul", (), (2, 1)), Step("Add", (), (0, 3))), (4,))
    signature, forms = commuted_key(measured, (plain,) * 3, (plain,))
    key = ProfileKey(
        "cuda 1", signature, "default", "gpu", threads=1, protocol=PROTOCOL_VERSION, forms=forms
    )
    row = ProfileRow(key, Timed((7.0,)).measurement, "2026-01-01T00:00:00+00:00")
    pricer = MeasuredPricer(RecordedDevice(load_profile("h200"), (row,)))

    def quote(kernel: Kernel) -> Quote:
        usual = pricer.backends[0].implementations(kernel)
        (plainly,) = (one for one in usual if not one.forms)
        return pricer.price(Offer(kernel, "gpu", plainly))

    assert [quote(one).source for one in (measured, asked)] == ["recorded"] * 2
    assert quote(asked).time_us == 7.0
    other = replace(asked, steps=(Step("Sub", (), (2, 1)), asked.steps[1]))
    assert quote(other).source != "recorded"
