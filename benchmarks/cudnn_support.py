"""What cuDNN has for convolutions on devices that are not here, without a GPU.

`record` asks the wheels (`pip install 'eqsat-opt[plan]'`) about all convolutions of the zoo models,
each with the epilogues that models have, for the devices of profiles, and writes the tables of
`eqsat_opt/runtime/backends/cudnn/support`. `compare` asks them anew about `--count` recorded specs
of each table, drawn by a seed, and about the same ones where they read or write channel ranges of
larger tensors. It prints how many answers are equal, and ends with 1 if less than 95 % are.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from eqsat_opt import zoo
from eqsat_opt.files import write_whole
from eqsat_opt.ir.dims import dim_names, evaluate_dim
from eqsat_opt.ir.kernel import Kernel, Operand, Step
from eqsat_opt.ir.normalise import normalise
from eqsat_opt.ir.onnx_import import import_model
from eqsat_opt.ir.onnx_load import load_model
from eqsat_opt.ir.types import TensorType
from eqsat_opt.runtime.backends.cudnn.oracle import (
    RECORDED_VERSION,
    Asker,
    Choice,
    missing_wheels,
    recorded,
    table_bytes,
)
from eqsat_opt.runtime.backends.cudnn.spec import CudnnSpec, Tensor, site_of, spec_from_json
from eqsat_opt.runtime.devices.description import DeviceDescription
from eqsat_opt.runtime.devices.profile import load_profile

MODELS = (
    "squeezenet", "inception_v3", "resnet50", "resnet18", "resnext50", "nasnet_a", "nasnet_cell",
    "vgg19", "vgg16", "alexnet", "inception_e", "ocggs_resnet", "dcgan", "cnn_training",
)  # fmt: skip
DEVICES = ("h200", "a100", "l4", "t4", "b200")
EPILOGUES = ((), ("bias",), ("bias", "relu"), ("add", "bias"), ("add", "bias", "relu"))
FURTHER = (("bias", "sigmoid"), ("bias", "tanh"))
_FURTHER_OF = 16
"""Convolutions of which the rare epilogues are asked, too."""
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
            if site is not None:
                yield site.spec


def _of_one_image(type_: TensorType) -> TensorType:
    ones = {name: 1 for dim in type_.shape for name in dim_names(dim)}
    return TensorType(type_.dtype, tuple(evaluate_dim(dim, ones) for dim in type_.shape))


def with_epilogues(specs: Sequence[CudnnSpec]) -> Iterator[CudnnSpec]:
    for number, spec in enumerate(specs):
        for one in (*EPILOGUES, *(FURTHER if number < _FURTHER_OF else ())):
            yield replace(spec, epilogue=one, residual=spec.y if "add" in one else None)


def record(devices: Sequence[str], folder: Path) -> int:
    bare = dict.fromkeys((*convolutions("full"), *convolutions("tiny")))
    specs = list(with_epilogues(list(bare)))
    print(f"{len(bare)} convolutions, {len(specs)} specs", flush=True)
    for device in devices:
        asker, table = Asker(description(device)), dict[str, tuple[Choice, ...]]()
        for spec in specs:
            found = asker.ask(spec)
            if asker.version != RECORDED_VERSION:
                print(f"cuDNN {asker.version} is here; the tables are of {RECORDED_VERSION}")
                return 1
            if found is not None:
                table[spec.key] = tuple(one for one in found if not one.is_compiled)
        asker.close()
        architecture = description(device).architecture
        write_whole(folder / f"{architecture}.json.gz", table_bytes(table))
        none = sum(not found for found in table.values())
        print(f"{architecture}: {len(table)} specs, {none} without a kernel", flush=True)
    return 0


def in_larger(tensor: Tensor) -> Tensor:
    """Channels of a tensor of twice as many, which vary fastest."""
    channels = tensor.dims[1]
    return replace(
        tensor, strides=tuple(s if s == 1 else s + s // channels * channels for s in tensor.strides)
    )


def compare(devices: Sequence[str], count: int, seed: int) -> int:
    worst = 1.0
    for device in devices:
        asker, table = Asker(description(device)), recorded(description(device).architecture)
        drawn = random.Random(seed).sample(sorted(table), min(count, len(table)))
        told: Counter[str] = Counter()
        for key in drawn:
            spec = spec_from_json(json.loads(key))
            told["equal"] += (asker.ask(spec) or ()) == table[key]
            if table[key] and spec.residual is None:
                told["may be views"] += 1
                view = replace(spec, x=in_larger(spec.x), y=in_larger(spec.y))
                engines = [one.name for one in asker.ask(view, _ALL) or () if not one.is_compiled]
                told["views"] += bool(engines)
                told["the same first"] += table[key][0].name in engines
        asker.close()
        print(f"{device}: {told['equal']} of {len(drawn)} equal; of {told['may be views']} in")
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
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    folder = Path(__file__).parents[1] / "eqsat_opt/runtime/backends/cudnn/support"
    parser.add_argument("--folder", type=Path, default=folder)
    options = parser.parse_args()
    if why := missing_wheels():
        print(why)
        return 1
    devices = options.devices.split(",")
    if options.step == "record":
        return record(devices, options.folder)
    return compare(devices, options.count, options.seed)


if __name__ == "__main__":
    sys.exit(main())
