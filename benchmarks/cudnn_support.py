"""What cuDNN has for convolutions and products on devices that are not here, without a GPU.

`record` asks the wheels (`pip install 'eqsat-opt[plan]'`) about the convolutions of the zoo models,
those of their small forms for ``strict-fp32`` only, and about products under the other policies,
each with the epilogues that models have, for the devices of profiles, and writes the tables of
`eqsat_opt/runtime/backends/cudnn/support`, one for each policy of `--precisions` that the device
has. Kernels of products are compiled where they run, of which cuDNN tells only where a driver can
be loaded: `python -m tests.tools.driver_stand_in FOLDER` makes one. `compare` asks them anew about
`--count` recorded specs of each table, drawn by a seed, and about the same ones where they read or
write channel ranges of larger tensors. It prints how many answers are equal, and ends with 1 if
less than 95 % are.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, product
from pathlib import Path
from typing import Literal

from eqsat_opt.common.files import write_whole
from eqsat_opt.common.precision import Precision
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.values.dims import dim_names, evaluate_dim
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.lab import zoo
from eqsat_opt.runtime.backends.cudnn.oracle import (
    RECORDED_VERSION,
    Asker,
    CudnnChoice,
    missing_wheels,
    recorded,
    table_bytes,
    table_name,
)
from eqsat_opt.runtime.backends.cudnn.products import ProductSpec, product_site
from eqsat_opt.runtime.backends.cudnn.spec import AnySpec, CudnnSpec, site_of, spec_from_json
from eqsat_opt.runtime.backends.shared.tensors import StridedTensor
from eqsat_opt.runtime.devices.description import DeviceDescription
from eqsat_opt.runtime.devices.profile import load_profile

MODELS = (
    "squeezenet", "inception_v3", "resnet50", "resnet18", "resnext50", "nasnet_a", "nasnet_cell",
    "vgg19", "vgg16", "alexnet", "inception_e", "ocggs_resnet", "dcgan", "cnn_training",
)  # fmt: skip
DEVICES = ("h200", "a100", "l4", "t4", "b200")
EPILOGUES = ((), ("bias",), ("bias", "relu"), ("add", "bias"), ("add", "bias", "relu"))
FURTHER = (("bias", "sigmoid"), ("bias", "tanh"))
PRODUCT_MODELS = ("bert",)
PRODUCT_EPILOGUES = (
    (), ("bias",), ("bias", "relu"), ("bias", "gelu"), ("bias", "gelu_approx_tanh")
)  # fmt: skip
_FURTHER_OF = 16
"""Convolutions of which the rare epilogues are asked, too."""
_RECORDED, _COMPILED = 4, 1
"""Kernels that are recorded of a convolution, and of a product, which take long to build."""
_ENOUGH = 0.95
_ALL = 200


def convolutions(scale: Literal["full", "tiny"]) -> Iterator[CudnnSpec]:
    """The bare convolutions of the zoo, of one image."""
    for name in MODELS:
        graph = normalise(import_model(load_model(zoo.build(name, scale=scale))))
        for node in graph.nodes:
            if node.op != "Conv":
                continue
            types = (graph.tensor_type(one) for one in node.inputs[:2])
            operands = tuple(Operand(_of_one_image(type_), False) for type_ in types if type_)
            site = site_of(Kernel(operands, (Step("Conv", node.attrs, (0, 1)),), (2,)))
            if site is not None and isinstance(site.spec, CudnnSpec):
                yield site.spec


def products(scale: Literal["full", "tiny"]) -> Iterator[ProductSpec]:
    """The bare products of the zoo."""
    for name in PRODUCT_MODELS:
        graph = normalise(import_model(load_model(zoo.build(name, scale=scale))))
        for node in graph.nodes:
            if node.op != "MatMul":
                continue
            types = [graph.tensor_type(one) for one in node.inputs]
            operands = tuple(Operand(_of_one_image(type_), False) for type_ in types if type_)
            body = Kernel(operands, (Step("MatMul", node.attrs, (0, 1)),), (2,))
            found = product_site(body, None, Precision.TF32)
            if found is not None:
                yield found[0]


def _of_one_image(type_: TensorType) -> TensorType:
    ones = {name: 1 for dim in type_.shape for name in dim_names(dim)}
    return TensorType(type_.dtype, tuple(evaluate_dim(dim, ones) for dim in type_.shape))


def with_epilogues(specs: Sequence[CudnnSpec]) -> Iterator[CudnnSpec]:
    for number, spec in enumerate(specs):
        for one in (*EPILOGUES, *(FURTHER if number < _FURTHER_OF else ())):
            yield replace(spec, epilogue=one, residual=spec.y if "add" in one else None)


def in_precision(spec: AnySpec, precision: Precision) -> AnySpec:
    dtype = "float16" if precision is Precision.FP16 else "float32"
    return replace(spec, dtype=dtype, precision=precision)


def all_specs(precisions: Sequence[Precision]) -> Iterator[tuple[Precision, AnySpec]]:
    full = list(dict.fromkeys(convolutions("full")))
    convolved = list(with_epilogues(full))
    tiny = [one for one in dict.fromkeys(convolutions("tiny")) if one not in full]
    multiplied = [
        replace(spec, epilogue=one)
        for spec in dict.fromkeys(products("full"))
        for one in PRODUCT_EPILOGUES
        if spec.b.dims[0] == 1 or not one
    ]
    for precision in precisions:
        is_strict = precision is Precision.STRICT
        further: Iterable[AnySpec] = with_epilogues(tiny) if is_strict else multiplied
        for spec in chain[AnySpec](convolved, further):
            yield precision, in_precision(spec, precision)


def record(devices: Sequence[str], precisions: Sequence[Precision], folder: Path) -> int:
    specs = list(all_specs(precisions))
    print(f"{len(specs)} specs", flush=True)
    for device, precision in product(devices, precisions):
        if precision.peak not in load_profile(device).peak_tflops:
            continue
        asker, table = Asker(description(device)), dict[str, tuple[CudnnChoice, ...]]()
        for spec in (spec for one, spec in specs if one is precision):
            is_product = isinstance(spec, ProductSpec)
            found = asker.ask(spec, _COMPILED if is_product else _RECORDED)
            if asker.version != RECORDED_VERSION:
                print(f"cuDNN {asker.version} is here; the tables are of {RECORDED_VERSION}")
                return 1
            if found is not None:
                table[spec.key] = found
        asker.close()
        architecture = description(device).architecture
        write_whole(folder / table_name(architecture, precision), table_bytes(table))
        none = sum(not found for found in table.values())
        print(
            f"{architecture} {precision}: {len(table)} specs, {none} without a kernel", flush=True
        )
    return 0


def in_larger(tensor: StridedTensor) -> StridedTensor:
    """Channels of a tensor of twice as many, which vary fastest."""
    channels = tensor.dims[1]
    return tensor._replace(
        strides=tuple(s if s == 1 else s + s // channels * channels for s in tensor.strides)
    )


def compare(devices: Sequence[str], precisions: Sequence[Precision], count: int, seed: int) -> int:
    worst = 1.0
    for device, precision in product(devices, precisions):
        table = recorded(description(device).architecture, precision)
        if not table:
            continue
        asker = Asker(description(device))
        drawn = random.Random(seed).sample(sorted(table), min(count, len(table)))
        told: Counter[str] = Counter()
        for key in drawn:
            spec = spec_from_json(json.loads(key))
            is_product = isinstance(spec, ProductSpec)
            answer = asker.ask(spec, _COMPILED if is_product else _RECORDED)
            told["equal"] += (answer or ()) == table[key]
            if table[key] and isinstance(spec, CudnnSpec) and spec.residual is None:
                told["may be views"] += 1
                view = replace(spec, x=in_larger(spec.x), y=in_larger(spec.y))
                engines = [one.name for one in asker.ask(view, _ALL) or ()]
                told["views"] += bool(engines)
                told["the same first"] += table[key][0].name in engines
        asker.close()
        print(
            f"{device} {precision}: {told['equal']} of {len(drawn)} equal; of "
            f"{told['may be views']} in"
        )
        print(f"  channel ranges of larger tensors, {told['views']} have kernels,")
        print(f"  {told['the same first']} of them the one that was recorded first")
        worst = min(worst, told["equal"] / max(len(drawn), 1))
    return int(worst < _ENOUGH)


def description(device: str) -> DeviceDescription:
    found = load_profile(device).description
    assert found is not None
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=["record", "compare"])
    parser.add_argument("--devices", default=",".join(DEVICES))
    parser.add_argument("--precisions", default=",".join(Precision))
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    folder = Path(__file__).parents[1] / "eqsat_opt/runtime/backends/cudnn/support"
    parser.add_argument("--folder", type=Path, default=folder)
    options = parser.parse_args()
    if why := missing_wheels():
        print(why)
        return 1
    devices = options.devices.split(",")
    precisions = [Precision(one) for one in options.precisions.split(",")]
    if options.step == "record":
        return record(devices, precisions, options.folder)
    return compare(devices, precisions, options.count, options.seed)


if __name__ == "__main__":
    sys.exit(main())
