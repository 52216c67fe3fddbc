"""The numeric check can fail: unsound changes of optimised models are noticed, sound ones are not.

Every mutant is one wrong rewrite: operands exchanged, an addend dropped, a slice moved by one, a
channel scaled. Mutants that nobody could notice are set aside: those whose outputs are equal to the
last bits in double precision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, shape_inference

from benchmarks.quantised_models import Recipe, quantise
from eqsat_opt.api import Result
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.graph.graph import OPAQUE
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.lab.testing import evaluate
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.inputs import random_inputs
from eqsat_opt.validation.compare import Reference, differences
from tests.unit.zoo_models import DISTINCT

OPTIONS = OrtOptions(threads=1)
SITES = 2
"""Mutants of one kind per model."""

Shape = tuple[int, ...]

# Wrong rewrites ----------------------------------------------------------------------------------


class Draft:
    """A copy of a model that one mutation may change."""

    def __init__(self, model: ModelProto) -> None:
        self.model = ModelProto()
        self.model.CopyFrom(model)

    @property
    def nodes(self) -> Any:
        return self.model.graph.node

    def constant(self, array: npt.NDArray[Any]) -> str:
        name = f"mutant_{len(self.model.graph.initializer)}"
        self.model.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def redirect(self, old: str, new: str, from_node: int) -> None:
        """Let everybody after a node read another value; a graph output keeps its name."""
        for node in self.nodes[from_node + 1 :]:
            node.input[:] = [new if name == old else name for name in node.input]
        if any(value.name == old for value in self.model.graph.output):
            self.nodes[from_node].CopyFrom(helper.make_node("Identity", [new], [old]))


@dataclass(frozen=True)
class Facts:
    """What mutations ask about a model."""

    shapes: dict[str, Shape]
    weights: dict[str, npt.NDArray[Any]]
    made_before: dict[str, int]

    @classmethod
    def of(cls, model: ModelProto) -> Facts:
        inferred = shape_inference.infer_shapes(model).graph
        values = [*inferred.value_info, *inferred.input, *inferred.output]
        shapes = {v.name: tuple(d.dim_value for d in v.type.tensor_type.shape.dim) for v in values}
        weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        made = {v.name: -1 for v in model.graph.input}
        made |= {name: i for i, node in enumerate(model.graph.node) for name in node.output}
        return cls(shapes | {name: array.shape for name, array in weights.items()}, weights, made)


def attribute(node: NodeProto, name: str) -> Any:
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), None)


def set_attribute(node: NodeProto, name: str, value: Any) -> None:
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


Mutation = Callable[[Draft, Facts, int], bool]
"""Changes the node with this number; False where there is nothing to change."""


def swap_operands(draft: Draft, facts: Facts, number: int) -> bool:
    node = draft.nodes[number]
    if node.op_type not in ("Sub", "Div", "MatMul", "Concat", "Pow"):
        return False
    first, second = node.input[:2]
    node.input[0], node.input[1] = second, first
    return first != second and (
        node.op_type != "MatMul" or facts.shapes[first] == facts.shapes[second]
    )


def drop_operand(draft: Draft, facts: Facts, number: int) -> bool:
    """An addend, a factor or a bias is lost."""
    node = draft.nodes[number]
    if node.op_type in ("Conv", "Gemm") and len(node.input) == 3:
        del node.input[2]
        return True
    out = facts.shapes[node.output[0]]
    if node.op_type not in ("Add", "Sub", "Mul", "Div") or facts.shapes[node.input[0]] != out:
        return False
    node.CopyFrom(helper.make_node("Identity", [node.input[0]], node.output))
    return True


def drop_function(draft: Draft, facts: Facts, number: int) -> bool:
    """A gate, an activation or a normalisation is lost."""
    node = draft.nodes[number]
    unary = (
        "Relu",
        "Sigmoid",
        "Tanh",
        "Erf",
        "Softmax",
        "LRN",
        "LayerNormalization",
        "Sqrt",
        "Clip",
        "Neg",
    )
    if node.op_type not in unary:
        return False
    node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output))
    return True


REPLACEMENTS = {
    "Relu": "LeakyRelu",
    "Sigmoid": "HardSigmoid",
    "Tanh": "Softsign",
    "Erf": "Tanh",
    "Add": "Sub",
    "Sub": "Add",
    "Mul": "Add",
    "Max": "Min",
}


def replace_function(draft: Draft, facts: Facts, number: int) -> bool:
    node = draft.nodes[number]
    if node.op_type in ("MaxPool", "AveragePool"):
        kept = [
            a for a in node.attribute if a.name in ("kernel_shape", "strides", "pads", "ceil_mode")
        ]
        other = "AveragePool" if node.op_type == "MaxPool" else "MaxPool"
        node.CopyFrom(helper.make_node(other, node.input, node.output))
        node.attribute.extend(kept)
        return True
    if node.op_type not in REPLACEMENTS:
        return False
    node.op_type = REPLACEMENTS[node.op_type]
    return True


def move_slice(draft: Draft, facts: Facts, number: int) -> bool:
    """Bounds are off by one."""
    node = draft.nodes[number]
    if node.op_type != "Slice" or any(name not in facts.weights for name in node.input[1:4]):
        return False
    starts, ends, axes = (facts.weights[name] for name in node.input[1:4])
    size = facts.shapes[node.input[0]][int(axes[0])]
    step = 1 if ends[0] < size else -1
    if starts[0] + step < 0 or ends[0] + step > size:
        return False
    node.input[1], node.input[2] = draft.constant(starts + step), draft.constant(ends + step)
    return True


def exchange_parts(draft: Draft, facts: Facts, number: int) -> bool:
    """A Split's neighbours, or two time steps, are taken for each other."""
    node = draft.nodes[number]
    if node.op_type != "Split" or facts.shapes[node.output[0]] != facts.shapes[node.output[1]]:
        return False
    node.output[0], node.output[1] = node.output[1], node.output[0]
    return True


def move_split(draft: Draft, facts: Facts, number: int) -> bool:
    """Sizes of a Split are exchanged where whoever reads the parts does not mind."""
    node = draft.nodes[number]
    sizes = (
        facts.weights.get(node.input[1])
        if node.op_type == "Split" and len(node.input) > 1
        else None
    )
    if sizes is None or sizes[0] == sizes[-1]:
        return False
    node.input[1] = draft.constant(sizes[::-1].copy())
    return True


def wrong_permutation(draft: Draft, facts: Facts, number: int) -> bool:
    node = draft.nodes[number]
    perm = list(attribute(node, "perm") or ()) if node.op_type == "Transpose" else []
    shape = facts.shapes[node.output[0]]
    for i in range(len(perm)):
        for j in range(i):
            if shape[i] == shape[j] > 1:
                perm[i], perm[j] = perm[j], perm[i]
                set_attribute(node, "perm", perm)
                return True
    return False


def weight_of(node: NodeProto, facts: Facts) -> int:
    """Position of a weight with more than one row, or -1."""
    if node.op_type not in ("Conv", "MatMul", "Gemm", "Add", "Mul"):
        return -1
    fitting = (
        i
        for i, name in enumerate(node.input)
        if name in facts.weights and facts.weights[name].size > 1
    )
    return next(fitting, -1)


def scale_weight(draft: Draft, facts: Facts, number: int) -> bool:
    """The last output channel of a weight is 10 % too large."""
    node = draft.nodes[number]
    position = weight_of(node, facts)
    if position < 0:
        return False
    array = facts.weights[node.input[position]].copy()
    array[(slice(-1, None),) if node.op_type == "Conv" else (..., slice(-1, None))] *= np.float32(
        1.1
    )
    node.input[position] = draft.constant(array)
    return True


def roll_weight(draft: Draft, facts: Facts, number: int) -> bool:
    """Channels of a weight are one place off."""
    node = draft.nodes[number]
    position = weight_of(node, facts)
    array = facts.weights[node.input[position]] if position >= 0 else np.zeros(1)
    axis = 0 if node.op_type == "Conv" else -1
    if position < 0 or array.shape[axis] < 2:
        return False
    node.input[position] = draft.constant(np.roll(array, 1, axis=axis))
    return True


def transpose_weight(draft: Draft, facts: Facts, number: int) -> bool:
    """A square weight, or a square kernel, is transposed."""
    node = draft.nodes[number]
    position = weight_of(node, facts) if node.op_type in ("Conv", "MatMul", "Gemm") else -1
    array = facts.weights[node.input[position]] if position >= 0 else np.zeros(1)
    if array.ndim < 2 or array.shape[-1] != array.shape[-2] or array.shape[-1] < 2:
        return False
    node.input[position] = draft.constant(np.ascontiguousarray(np.swapaxes(array, -1, -2)))
    return True


def shift_pads(draft: Draft, facts: Facts, number: int) -> bool:
    """Padding moves from one side to the other: an image moves by one pixel."""
    node = draft.nodes[number]
    pads = list(attribute(node, "pads") or ())
    if node.op_type not in ("Conv", "MaxPool", "AveragePool") or not pads or not pads[0]:
        return False
    half = len(pads) // 2
    pads[0], pads[half] = pads[0] - 1, pads[half] + 1
    set_attribute(node, "pads", pads)
    return True


def count_padding(draft: Draft, facts: Facts, number: int) -> bool:
    """The border of an average counts padding, or no longer does."""
    node = draft.nodes[number]
    if node.op_type != "AveragePool" or not any(attribute(node, "pads") or ()):
        return False
    set_attribute(node, "count_include_pad", 1 - (attribute(node, "count_include_pad") or 0))
    return True


def wrong_number(draft: Draft, facts: Facts, number: int) -> bool:
    """Epsilon, a window or an exponent is wrong."""
    node = draft.nodes[number]
    wrong: dict[str, dict[str, Any]] = {
        "LayerNormalization": {"epsilon": 0.1},
        "LRN": {"beta": 0.5, "alpha": 0.5},
        "Softmax": {"axis": 1},
        "Gemm": {"alpha": 0.9},
    }
    for name, value in wrong.get(node.op_type, {}).items():
        set_attribute(node, name, value)
    if (
        node.op_type in ("Add", "Mul", "Div")
        and facts.weights.get(node.input[1], np.zeros(2)).size == 1
    ):
        node.input[1] = draft.constant(facts.weights[node.input[1]] * np.float32(1.02))
        return True
    return node.op_type in wrong


def wrong_operand(draft: Draft, facts: Facts, number: int) -> bool:
    """Another value of the same shape is read: a shortcut from the wrong block, the wrong gate."""
    node = draft.nodes[number]
    for position, name in enumerate(node.input):
        if name in facts.weights:
            continue
        others = [
            other
            for other, made in facts.made_before.items()
            if made < number
            and other != name
            and facts.shapes.get(other) == facts.shapes.get(name)
            and other in facts.shapes
        ]
        if others:
            node.input[position] = others[-1]
            return True
    return False


def skip_node(draft: Draft, facts: Facts, number: int) -> bool:
    """A whole convolution or product is lost where the shapes allow it."""
    node = draft.nodes[number]
    if node.op_type not in ("Conv", "MatMul", "MaxPool", "AveragePool"):
        return False
    if facts.shapes[node.input[0]] != facts.shapes[node.output[0]]:
        return False
    node.CopyFrom(helper.make_node("Identity", node.input[:1], node.output))
    return True


MUTATIONS: tuple[Mutation, ...] = (
    swap_operands,
    drop_operand,
    drop_function,
    replace_function,
    move_slice,
    exchange_parts,
    move_split,
    wrong_permutation,
    scale_weight,
    roll_weight,
    transpose_weight,
    shift_pads,
    count_padding,
    wrong_number,
    wrong_operand,
    skip_node,
)


def mutants(model: ModelProto, seed: int) -> Iterator[tuple[str, ModelProto]]:
    """Valid mutants of a model, some of every kind."""
    facts = Facts.of(model)
    rng = np.random.default_rng(seed)
    for mutation in MUTATIONS:
        found = 0
        for number in rng.permutation(len(model.graph.node)):
            draft = Draft(model)
            what = f"{mutation.__name__} at {draft.nodes[number].op_type} {number}"
            if not mutation(draft, facts, int(number)):
                continue
            yield what, draft.model
            found += 1
            if found == SITES:
                break


# What the check says about them ------------------------------------------------------------------


def reference(model: ModelProto, seeds: tuple[int, ...] = (0, 1, 2)) -> Reference:
    return Reference.of(model, OPTIONS, seeds)


def is_equivalent(model: ModelProto, mutant: ModelProto) -> bool:
    """Whether both compute the same in double precision, on inputs that the check did not see."""
    graphs = [import_model(load_model(m)) for m in (model, mutant)]
    if any(node.op == OPAQUE for graph in graphs for node in graph.nodes):
        return gives_equal_bits(model, mutant)
    for seed in (11, 12):
        feeds = {name: np.asarray(a, np.float64) for name, a in random_inputs(model, seed).items()}
        for expected, actual in zip(
            *(evaluate(graph, dict(feeds)) for graph in graphs), strict=True
        ):
            scale = float(np.abs(expected).max(initial=0.0))
            if not np.allclose(actual, expected, rtol=0, atol=1e-11 * scale, equal_nan=True):
                return False
    return True


def gives_equal_bits(model: ModelProto, mutant: ModelProto) -> bool:
    """Whether the runtime makes the same of both, on inputs that the check did not see."""
    first, second = (OrtSession(m, OPTIONS) for m in (model, mutant))
    inputs = [random_inputs(model, seed) for seed in (11, 12)]
    pairs = [pair for x in inputs for pair in zip(first.run(x), second.run(x), strict=True)]
    return all(np.array_equal(left, right) for left, right in pairs)


def judge(
    name: str,
    model: ModelProto,
    counts: Counter[str],
    unnoticed: list[str],
    is_equivalent: Callable[[ModelProto, ModelProto], bool] = is_equivalent,
) -> None:
    truth = reference(model)
    for what, mutant in mutants(model, seed=len(name)):
        try:
            found = differences(truth, mutant, OPTIONS, Numerics.REASSOCIATE)
        except RuntimeFailed:
            counts["invalid"] += 1
            continue
        if any(difference.why for difference in found):
            counts["noticed"] += 1
        elif is_equivalent(model, mutant):
            counts["equivalent"] += 1
        else:
            worst = max(found, key=lambda d: d.max_rel)
            unnoticed.append(f"{name}: {what} (relative {worst.max_rel:.1e})")


def test_wrong_rewrites_are_noticed(tiny_result: Callable[[str], Result]) -> None:
    counts: Counter[str] = Counter()
    unnoticed: list[str] = []
    for name in DISTINCT[::3]:
        judge(name, tiny_result(name).model, counts, unnoticed)
    wrong = counts["noticed"] + len(unnoticed)
    print(
        f"{counts['noticed']} of {wrong} wrong mutants noticed, {dict(counts)}",
        *unnoticed,
        sep="\n",
    )
    assert wrong >= 50
    assert counts["noticed"] >= 0.95 * wrong, unnoticed


def test_wrong_rewrites_between_quantisations_are_noticed(
    tiny_model: Callable[[str], ModelProto],
) -> None:
    """Flipped roundings are excused, and nothing hides behind them."""
    counts: Counter[str] = Counter()
    unnoticed: list[str] = []
    for name, method in (("bert_taso", "qdq"), ("bert_taso", "dynamic"), ("alexnet", "qdq")):
        recipe = Recipe(name, method, only=("Conv", "Gemm", "MatMul"))
        model = quantise(tiny_model(name), recipe, seed=0)
        judge(recipe.name, model, counts, unnoticed, gives_equal_bits)
    wrong = counts["noticed"] + len(unnoticed)
    assert wrong >= 30
    assert counts["noticed"] >= 0.95 * wrong, unnoticed


# What the check makes of outputs by themselves ---------------------------------------------------


def linear(*shape: int, factor: float = 1.0, offset: float = 0.0) -> ModelProto:
    """Elements times a factor plus an offset; without a shape the sum of 64 of them."""
    if shape:
        last = helper.make_node("Identity", ["b"], ["y"])
    else:
        last = helper.make_node("ReduceSum", ["b"], ["y"], keepdims=0)
    scale = helper.make_node("Mul", ["x", "factor"], ["a"])
    shift = helper.make_node("Add", ["a", "offset"], ["b"])
    numbers = {"factor": factor, "offset": offset}
    graph = helper.make_graph(
        [scale, shift, last],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape or (64,))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.array(v, np.float32), n) for n, v in numbers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def verdict(
    first: ModelProto,
    second: ModelProto,
    numerics: Numerics = Numerics.REASSOCIATE,
    seeds: tuple[int, ...] = (0, 1, 2),
) -> str:
    (difference,) = differences(reference(first, seeds), second, OPTIONS, numerics)
    return difference.why


def test_equal_models_are_equal() -> None:
    for numerics in Numerics:
        assert verdict(linear(4, 8), linear(4, 8), numerics) == ""


def test_the_class_of_numerics_decides_how_much_is_too_much() -> None:
    changed = linear(4, 8, factor=1.001)
    assert verdict(linear(4, 8), changed, Numerics.BITEXACT)
    assert verdict(linear(4, 8), changed, Numerics.REASSOCIATE)
    assert verdict(linear(4, 8), changed, Numerics.RELAXED) == ""


def test_a_large_offset_hides_nothing() -> None:
    assert verdict(linear(4, 8, offset=100.0), linear(4, 8, offset=100.0, factor=0.99))


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
def test_a_single_number_is_compared_with_its_own_size(seeds: tuple[int, ...]) -> None:
    assert verdict(linear(), linear(factor=1.0000005), seeds=seeds) == ""
    assert verdict(linear(), linear(factor=1.01), seeds=seeds)


def test_nan_is_only_equal_to_nan() -> None:
    assert verdict(linear(4, factor=np.nan), linear(4, factor=np.nan)) == ""
    assert verdict(linear(4), linear(4, factor=np.nan)) == "values differ"


def test_other_outputs_are_no_result() -> None:
    renamed = linear(4)
    renamed.graph.output[0].name = "z"
    renamed.graph.node[-1].output[0] = "z"
    with pytest.raises(RuntimeFailed, match="outputs are"):
        verdict(linear(4), renamed)
