"""Are small faults noticed? Each is one that a wrong rewrite could make, in one place of a model.

    python -m benchmarks.subtle_faults [--count 500] [--seed 0] [--json FILE]

A channel of a weight is off by a thousandth, a window by one pixel, a slice by one place, two
weights change places, an epsilon is ten times as large. Model and fault are drawn by chance. A
fault that moves no output by more than 2e-5 of its largest number, as computed without the
runtime's fusions, is set aside: it is not told from rounding. Every model is also compared with
itself, with its sums in another order; whoever is called wrong there is a false alarm.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from benchmarks.subtle_models import MODELS, REORDERED
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.validation.compare import Reference, differences

__all__ = ["FAULTS", "Tally", "false_alarms", "injected"]

Array: TypeAlias = npt.NDArray[Any]
Fault: TypeAlias = Callable[[ModelProto, random.Random], bool]
"""Spoils a model in one place; False where it has no place for it."""

_OPTIONS = OrtOptions(threads=1)
_PLAIN = OrtOptions(threads=1, level="disabled")
_SEEDS = (0, 1)
_LEAST = 2e-5


@dataclass
class Tally:
    """What became of faults.

    Attributes:
        noticed: per kind.
        aside: per kind, those that hardly move an output.
        missed: models and kinds.
    """

    noticed: Counter[str] = field(default_factory=Counter)
    aside: Counter[str] = field(default_factory=Counter)
    missed: list[str] = field(default_factory=list)


def _nodes(model: ModelProto, *operators: str) -> list[NodeProto]:
    return [node for node in model.graph.node if node.op_type in operators]


def _weight(model: ModelProto, chance: random.Random, *places: tuple[str, int]) -> Any:
    """An initializer that some node reads at a place, and its values."""
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    found = [
        held[node.input[place]]
        for operator, place in places
        for node in _nodes(model, operator)
        if len(node.input) > place and node.input[place] in held
    ]
    if not found:
        return None, np.zeros(0)
    tensor = chance.choice(found)
    return tensor, numpy_helper.to_array(tensor).copy()


def _put(tensor: Any, values: Array) -> bool:
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return True


_WEIGHTS = (("Conv", 1), ("MatMul", 1), ("Gemm", 1))
_BIASES = (("Conv", 2), ("Gemm", 2), ("Add", 1))


def _scaled_channel(model: ModelProto, chance: random.Random) -> bool:
    """One channel of a weight is off by a thousandth."""
    tensor, values = _weight(model, chance, *_WEIGHTS)
    if tensor is None:
        return False
    axis = 0 if values.ndim == 4 else values.ndim - 1
    index = [slice(None)] * values.ndim
    index[axis] = slice(at := chance.randrange(values.shape[axis]), at + 1)
    values[tuple(index)] *= np.float32(1.001)
    return _put(tensor, values)


def _swapped_pair(model: ModelProto, chance: random.Random) -> bool:
    tensor, values = _weight(model, chance, *_WEIGHTS)
    if tensor is None:
        return False
    flat = values.reshape(-1)
    first, second = chance.sample(range(flat.size), 2)
    flat[[first, second]] = flat[[second, first]]
    return _put(tensor, values)


def _turned_sign(model: ModelProto, chance: random.Random) -> bool:
    tensor, values = _weight(model, chance, *_WEIGHTS)
    if tensor is None:
        return False
    values.reshape(-1)[chance.randrange(values.size)] *= -1
    return _put(tensor, values)


def _lost_bias(model: ModelProto, chance: random.Random) -> bool:
    """The bias of one channel is lost."""
    tensor, values = _weight(model, chance, *_BIASES)
    if tensor is None:
        return False
    values.reshape(-1)[chance.randrange(values.size)] = 0
    return _put(tensor, values)


def _moved_bias(model: ModelProto, chance: random.Random) -> bool:
    """Biases are rolled by one channel."""
    tensor, values = _weight(model, chance, *_BIASES)
    if tensor is None:
        return False
    return _put(tensor, np.roll(values.reshape(-1), 1).reshape(values.shape))


def _scaled_factor(model: ModelProto, chance: random.Random) -> bool:
    """A constant factor or divisor is off by a thousandth."""
    tensor, values = _weight(model, chance, ("Mul", 1), ("Div", 1))
    return tensor is not None and _put(tensor, values * np.float32(1.001))


def _set(model: ModelProto, chance: random.Random, change: Mapping[str, Callable[[Any], Any]],
         *operators: str) -> bool:  # fmt: skip
    found = [
        attribute
        for node in _nodes(model, *operators)
        for attribute in node.attribute
        if attribute.name in change
    ]
    if not found:
        return False
    attribute = chance.choice(found)
    value = helper.get_attribute_value(attribute)
    new = change[attribute.name](value)
    attribute.CopyFrom(helper.make_attribute(attribute.name, new))
    return bool(new != value)


def _wrong_epsilon(model: ModelProto, chance: random.Random) -> bool:
    """Ten times as large."""
    change = {"epsilon": lambda value: 10 * value}
    return _set(model, chance, change, "LayerNormalization", "BatchNormalization")


def _shifted_window(model: ModelProto, chance: random.Random) -> bool:
    """One row of padding is at the other end."""

    def change(pads: Sequence[int]) -> list[int]:
        half, moved = len(pads) // 2, list(pads)
        axis = chance.randrange(half)
        if moved[axis]:
            moved[axis] -= 1
            moved[axis + half] += 1
        return moved

    return _set(model, chance, {"pads": change}, "Conv", "MaxPool", "AveragePool")


def _counted_padding(model: ModelProto, chance: random.Random) -> bool:
    return _set(model, chance, {"count_include_pad": lambda value: 1 - value}, "AveragePool")


def _other_axis(model: ModelProto, chance: random.Random) -> bool:
    """A softmax over the other of two equal extents."""
    return _set(model, chance, {"axis": lambda value: -3 - value}, "Softmax")


def _other_order(model: ModelProto, chance: random.Random) -> bool:
    """The operands of a concatenation or a difference change places."""
    found = _nodes(model, "Concat", "Sub")
    if not found:
        return False
    node = chance.choice(found)
    node.input[0], node.input[1] = node.input[1], node.input[0]
    return bool(node.input[0] != node.input[1])


def _moved_slice(model: ModelProto, chance: random.Random) -> bool:
    """A slice begins and ends one place later."""
    held = {tensor.name: tensor for tensor in model.graph.initializer}
    found = _nodes(model, "Slice")
    if not found:
        return False
    node = chance.choice(found)
    for place in (1, 2):
        _put(held[node.input[place]], numpy_helper.to_array(held[node.input[place]]) + 1)
    return True


def _other_index(model: ModelProto, chance: random.Random) -> bool:
    tensor, values = _weight(model, chance, ("Gather", 1))
    if tensor is None:
        return False
    flat = values.reshape(-1)
    at = chance.randrange(flat.size)
    flat[at] = flat[at] - 1 if flat[at] else 1
    return _put(tensor, values)


def _moved_bound(model: ModelProto, chance: random.Random) -> bool:
    """A bound of a Clip is off by a hundredth."""
    tensor, values = _weight(model, chance, ("Clip", 1), ("Clip", 2))
    return tensor is not None and _put(tensor, np.asarray(values * 1.01, np.float32))


def _other_slope(model: ModelProto, chance: random.Random) -> bool:
    return _set(model, chance, {"alpha": lambda value: 1.01 * value}, "LeakyRelu")


FAULTS: Mapping[str, Fault] = {
    "channel scaled by 1.001": _scaled_channel,
    "two weights swapped": _swapped_pair,
    "sign of one weight": _turned_sign,
    "bias of one channel lost": _lost_bias,
    "biases of the next channel": _moved_bias,
    "factor of 1.001": _scaled_factor,
    "epsilon times 10": _wrong_epsilon,
    "window moved by one": _shifted_window,
    "padding counted": _counted_padding,
    "axis of softmax": _other_axis,
    "operands exchanged": _other_order,
    "slice moved by one": _moved_slice,
    "one index": _other_index,
    "bound off by 1 %": _moved_bound,
    "slope off by 1 %": _other_slope,
}


def injected(count: int, seed: int) -> Tally:
    """Inject so many faults that count, and compare."""
    chance, tally = random.Random(seed), Tally()
    references = {name: Reference.of(build(), _OPTIONS, _SEEDS) for name, build in MODELS.items()}
    plain = {name: _computed(MODELS[name](), reference) for name, reference in references.items()}
    tried = 0
    while sum(tally.noticed.values()) + len(tally.missed) < count and tried < 20 * count:
        tried += 1
        name, kind = chance.choice(list(MODELS)), chance.choice(list(FAULTS))
        model = MODELS[name]()
        if not FAULTS[kind](model, chance):
            continue
        reference = references[name]
        try:
            moved = _distance(plain[name], _computed(model, reference))
            if moved < _LEAST:
                tally.aside[kind] += 1
                continue
            found = differences(reference, model, _OPTIONS, Numerics.REASSOCIATE)
        except RuntimeFailed:
            tally.noticed[kind] += 1
            continue
        if any(one.why for one in found):
            tally.noticed[kind] += 1
        else:
            tally.missed.append(f"{name}: {kind} (moves {moved:.1e})")
    return tally


def false_alarms() -> list[str]:
    """Models in another order of sums that are called wrong; there should be none."""
    wrong = []
    for name, build in MODELS.items():
        reference = Reference.of(build(), _OPTIONS, _SEEDS)
        for other in (build, REORDERED.get(name, build)):
            found = differences(reference, other(), _OPTIONS, Numerics.REASSOCIATE)
            wrong += [f"{name}: {one.name}: {one.why}" for one in found if one.why]
    return wrong


def _computed(model: ModelProto, reference: Reference) -> list[Any]:
    session = OrtSession(model, _PLAIN)
    return [value for feeds in reference.feeds for value in session.run(feeds)]


def _distance(first: Sequence[Any], second: Sequence[Any]) -> float:
    """The largest move of an output, as a share of its largest number."""
    shares = [
        float(np.max(np.abs(a - b)) / np.max(np.abs(a))) if np.shape(a) == np.shape(b) else np.inf
        for a, b in zip(first, second, strict=True)
    ]
    return max(shares)


def main() -> int:
    """Run from the command line; the number of faults missed and of false alarms, at most 255."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    onnx.checker.check_model(next(iter(MODELS.values()))())
    tally, alarms = injected(given.count, given.seed), false_alarms()
    table = Table("fault", "noticed", "not told from rounding")
    for kind in FAULTS:
        table.add_row(kind, str(tally.noticed[kind]), str(tally.aside[kind]))
    console = Console()
    console.print(table)
    for line in (*(f"missed: {one}" for one in tally.missed), *(f"alarm: {a}" for a in alarms)):
        console.print(line)
    console.print(
        f"{sum(tally.noticed.values())} noticed, {len(tally.missed)} missed, "
        f"{len(alarms)} false alarms"
    )
    if given.json:
        value = {
            "noticed": dict(tally.noticed), "aside": dict(tally.aside),
            "missed": tally.missed, "false_alarms": alarms,
        }  # fmt: skip
        given.json.write_text(json.dumps(value, indent=1) + "\n")
    return min(255, len(tally.missed) + len(alarms))


if __name__ == "__main__":
    raise SystemExit(main())
