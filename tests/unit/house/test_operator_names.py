"""Where operators are named: in their records, the books, the backends, and what is listed here.

What asks several operators the same question asks for a trait of their records instead. A new name
in a file fails, and so does one that is no longer there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import eqsat_opt
from eqsat_opt.ir.ops import OPS

PACKAGE = Path(eqsat_opt.__file__).parent
ROOMS = ("ir/ops/", "rules/books/", "runtime/", "training/")
"""Where any operator may be named."""

# fmt: off
HELD: dict[str, dict[str, str]] = {
    "spells operators in ONNX, or reads nodes by the names that ONNX has for them": {
        "validation/designed_inputs.py":
            "Abs Add ArgMax ArgMin Attention Cast Clip Equal Erf Exp Expand GRU GlobalMaxPool "
            "Greater GreaterOrEqual IsNaN LSTM LeakyRelu Less LessOrEqual LogSoftmax Max MaxPool "
            "Min Neg Not PRelu Pad RNN ReduceMax ReduceMin Relu Reshape Sigmoid Sign Slice "
            "Softmax Sub Tanh TopK Transpose Where",
        "validation/noise.py":
            "Abs Add And ArgMax ArgMin AveragePool Cast Celu Clip Conv ConvTranspose CumSum Div "
            "Elu Equal Expand GRU GatherND Gelu GlobalAveragePool GlobalMaxPool Greater "
            "GreaterOrEqual IsNaN LSTM LeakyRelu Less LessOrEqual LogSoftmax MatMul Max MaxPool "
            "Min Mish Mod Mul Neg Not Or PRelu Pad Pow RNN Range Reciprocal ReduceMax ReduceMean "
            "ReduceMin ReduceSum Relu Resize ReverseSequence Round ScatterElements ScatterND Selu "
            "Sigmoid Sign Softmax Softplus Sqrt Sub Swish TopK Where Xor",
        "approximation/dequantising.py": "Add AveragePool Cast Concat Conv Div Floor "
        "GlobalAveragePool HardSigmoid LeakyRelu MatMul MaxPool Mul Relu Reshape Sigmoid Softmax",
        "approximation/errors.py": "Add",
        "approximation/implementations.py": "Cast MatMul Mul",
        "approximation/rewriting.py": "Add MatMul",
        "approximation/sites.py": "MatMul Transpose",
        "approximation/static/models.py": "MaxPool Transpose",
        "approximation/static/rewriting.py": "Add Conv MatMul",
        "approximation/static/units.py": "Add AveragePool Clip Concat Conv "
        "GlobalAveragePool LeakyRelu MatMul MaxPool Mul Relu Reshape Resize Sigmoid Transpose",
        "ir/onnx/computed_shapes.py": "AveragePool Conv MaxPool Pad Reshape Resize Slice TopK",
        "ir/onnx/contradictions.py": "Conv ConvTranspose GRU LSTM RNN Reshape",
        "ir/onnx/export_context.py":
            "Add Cast Concat Div Equal Gather Greater Less Mod Mul Reshape Sub Where",
        "ir/onnx/foreign_types.py": "Attention Conv Gelu LayerNormalization",
        "ir/onnx/import_context.py": "Expand",
        "ir/onnx/mappings/einsum.py": "MatMul Mul ReduceSum Reshape Transpose",
        "ir/onnx/mappings/positions.py":
            "GatherElements GatherND ReverseSequence ScatterElements ScatterND",
        "ir/onnx/mappings/recurrence.py": "GRU LSTM RNN Tanh",
        "ir/onnx/mappings/resampling.py": "Expand Resize",
        "ir/sizes/fitting.py": "Reshape",
        "ir/sizes/equations.py":
            "BatchNormalization Concat Conv ConvTranspose Expand GRU InstanceNormalization LSTM "
            "MatMul RNN Reshape Where",
        "ir/onnx/mappings/attention.py":
            "Add Attention Gather MaskedAttention MatMul Mul Repeat Softmax Transpose",
        "ir/onnx/mappings/constants.py": "Expand Range",
        "ir/onnx/mappings/elementwise.py":
            "Add Cast Celu Clamp Clip Div Elu Equal Erf Gelu GreaterOrEqual HardSigmoid HardSwish "
            "LessOrEqual Max Min Mish Mul Or Reciprocal Rsqrt Scale Shift Sigmoid Softplus Sqrt "
            "Square Swish Tanh",
        "ir/onnx/mappings/linear.py": "Add Conv ConvTranspose MatMul Mul Transpose",
        "ir/onnx/mappings/movement.py":
            "BatchNormalization Concat Expand Gather InstanceNormalization Reshape Slice "
            "StridedSlice Transpose",
        "ir/onnx/mappings/normalisation.py":
            "Add BatchNormalization Center Div InstanceNormalization LayerNormalization Mul Pow "
            "RMSNormalization ReduceMean RmsN Sqrt Sub",
        "ir/onnx/mappings/padding.py": "Continued Pad Slice",
        "ir/onnx/mappings/reduction.py":
            "ArgMax ArgMin CumSum LogSoftmax ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
            "Softmax TopK Transpose",
        "ir/onnx/mappings/window.py": "AveragePool MaxPool",
        "ir/onnx/data_movement.py": "Concat Expand Gather GatherElements Reshape Slice Transpose",
        "ir/onnx/importer.py": "Reshape",
        "ir/onnx/quantised.py":
            "Add Cast Clip Concat Conv ConvTranspose MatMul MaxPool Mul Pad Relu Resize TopK "
            "Where",
    },
    "folds, moves or checks these operators in a graph by laws of their own": {
        "ir/passes/affine.py": "Add Conv ConvTranspose Div MatMul Mul Sub",
        "ir/passes/batch_normalisation.py":
            "Add BatchNormalization Conv ConvTranspose Div MatMul Mul Sqrt Sub",
        "ir/passes/nonfinite.py": "Div Exp Mul Pow Reciprocal Rsqrt Scale Square",
        "ir/onnx/folding.py": "Gather LeakyRelu Pow ReduceMean",
        "ir/onnx/shape_values.py":
            "Abs Add And Cast Div Equal Gather Greater GreaterOrEqual Less LessOrEqual Max Min Mod "
            "Mul Neg Not Or Pad ReduceMax ReduceMin ReduceProd ReduceSum Sub Where Xor",
        "ir/passes/gemms.py": "Add MatMul Transpose",
        "ir/passes/passing.py": "Attention Expand Pad Range Reshape Resize Slice TopK",
        "ir/passes/fp16.py": "Cast InstanceNormalization LRN",
        "ir/graph/handles.py": "Reshape",
        "ir/passes/infinite_products.py": "Div Mul",
        "ir/passes/simplification/expansions.py": "Expand",
        "ir/passes/simplification/no_effect.py":
            "Cast Clip Concat Expand Pad Reshape Slice Transpose",
        "ir/passes/simplification/simplify.py": "Where",
    },
    "knows at which operands these operators are finite, and the signs of their results": {
        "ir/passes/finiteness.py":
            "Abs Add ArgMax ArgMin AveragePool Cast Clamp Clip Concat CumSum Div Equal Exp Fill "
            "GRU GatherND GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual HardSigmoid "
            "IsNaN LRN LSTM Less LessOrEqual MaskedAttention Max MaxPool Min Mod Mul Pad Pow RNN "
            "Range Reciprocal ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Relu Resize "
            "Rsqrt Scalar Scale ScatterElements ScatterND Shift Sigmoid Softmax Softplus Sqrt "
            "Square ThresholdedRelu TopK Where",
    },
    "finds the steps of recurrent layers, and writes the layers": {
        "ir/passes/recurrences/affine_forms.py": "Add Concat Gather MatMul Reshape Slice",
        "ir/passes/recurrences/cells.py": "Add GRU LSTM Mul Sigmoid Sub Tanh",
        "ir/passes/recurrences/layers.py": "Expand GRU",
        "ir/passes/recurrences/loop_layers.py":
            "Add Cast CumSum Expand Gather GatherElements Greater LSTM Mul Not Sub TopK Where",
        "ir/passes/recurrences/loops.py": "Add Cast Gather Less Reshape Slice",
        "ir/passes/recurrences/parameters.py": "Expand GRU Gather LSTM Transpose",
        "ir/passes/recurrences/products.py": "Add MatMul Slice",
        "ir/passes/recurrences/sequences.py": "Concat Reshape Transpose",
        "ir/passes/recurrences/writing.py": "Add Concat CumSum Expand Reshape Slice Sub",
    },
    "functions of a trace of which a checker knows more than that they are functions": {
        "checking/expressions.py": "Erf Exp Log Pow Where",
        "proving/evidence/lean.py": "Exp Log",
        "proving/evidence/trace.py": "Max Min Pow Relu Sqrt",
    },
    "makes or reads terms of these operators: literals, views, siblings": {
        "lab/generation/siblings.py": "Concat",
        "pipeline/certificates/chain.py": "Concat",
        "pipeline/certificates/comparison.py": "Scalar",
        "pipeline/certificates/term_table.py": "Concat Reshape Scalar",
        "select/rebuilding/graph_edit.py": "Reshape",
        "egraph/encoding/compile.py": "Reshape",
        "egraph/encoding/schema.py":
            "Add Concat Conv Div IdentityKernel MatMul Mul Pad Reshape Scalar Slice Sub Transpose",
        "egraph/frozen.py": "Scalar",
        "egraph/loading/lowering.py": "Add Concat Conv Reshape Scalar Where",
        "egraph/loading/siblings.py": "Add Concat Conv MatMul Pad Slice",
        "egraph/loading/tables.py": "Scalar",
    },
    "typing rules that do not follow: of lists, of operands that broadcast, of any rank at once": {
        "ir/graph/broadcasting.py": "Expand MaskedAttention MatMul Reshape",
        "egraph/encoding/typing.py":
            "Attention Concat Conv Expand Fill MaskedAttention MatMul Pad Repeat Reshape Scalar "
            "Slice Transpose",
    },
    "parts of spellings that recognition looks for, and what it may leave around them": {
        "cost/operators.py": "Center RmsN Rsqrt",
        "egraph/recognition/fragments.py":
            "Add Clip HardSigmoid Max Min Mul Reciprocal Reshape Scalar Scale Shift Sub",
        "egraph/recognition/readout.py":
            "Add Attention Fill Gelu HardSwish LayerNormalization MaskedAttention Mul "
            "RMSNormalization Reciprocal Repeat Reshape Scale Shift Softmax Square Swish "
            "Transpose",
        "egraph/recognition/recognise.py": "Add Mul Repeat Reshape Scalar Scale Shift Square",
        "egraph/recognition/windows.py":
            "Add Clip Div Erf Exp Expand HardSigmoid IsNaN Log LogSoftmax MatMul Max Min Mul Neg "
            "Pow Reciprocal ReduceMax ReduceMean ReduceSum Relu Reshape Scalar Sigmoid Softmax "
            "Sqrt Sub Tanh Transpose Where",
    },
    "what a number domain knows of these functions; any other is an unknown one": {
        "proving/checks/bounds.py": "Cast Gather ReduceMin ReduceProd",
        "proving/numbers/angles.py": "Cos Sin",
        "proving/numbers/casts.py": "Cast",
        "proving/numbers/evaluation.py": "Cast",
        "proving/numbers/rationals.py": "Cast",
        "proving/numbers/reals.py": "Log Pow",
        "proving/numbers/shapes.py":
            "Celu Cos Elu Erf Exp Gelu Log Mish Selu Sigmoid Sin Softplus Sqrt Swish Tanh",
        "proving/numbers/terms.py": "Add Cast Div Gather Mul ReduceMin ReduceProd Sub Where",
        "proving/numbers/twofield.py":
            "Abs Cos Erf Exp Gelu Log Mish Pow Sigmoid Sin Softplus Sqrt Swish Tanh",
    },
    "draws more instances than those that follow from the index function, or takes lists": {
        "proving/typing/most_general.py": "HardSwish LeakyRelu Relu Tanh",
        "proving/typing/movement_schemes.py":
            "Concat Expand Fill Gather IdentityKernel Pad Reshape Scalar Slice Transpose",
        "proving/typing/schemes.py":
            "Attention Clamp Clip MaskedAttention MatMul PRelu Scale Shift",
        "proving/typing/window_schemes.py":
            "BatchNormalization Conv ConvTranspose InstanceNormalization LRN",
    },
    "laws of these functions, or of the axes of operators with lists, that proofs use": {
        "proving/numbers/definitions.py":
            "Abs And Cast Clip Elu Equal Erf Exp Gelu Greater GreaterOrEqual HardSigmoid "
            "HardSwish IsNaN LeakyRelu Less LessOrEqual Log Max Min Mish Not Or PRelu Relu Selu "
            "Sigmoid Sign Softplus Softsign Sqrt Swish Tanh ThresholdedRelu Xor",
        "proving/proof/demands.py": "Erf Exp IsNaN Log Pow Sqrt Where",
        "proving/proof/elements.py": "Cast",
        "proving/proof/axes/frames.py":
            "Clamp Conv Expand Fill Gather MatMul PRelu Pad Reshape Transpose",
        "proving/proof/sums/from_terms.py": "Erf Exp Max Min Pow Relu Sqrt Where",
        "proving/proof/sums/merging.py": "Exp",
        "proving/proof/sums/powers.py": "Exp",
        "proving/proof/sums/ranges.py": "Abs Exp Max Min Pow Relu Sqrt Where",
        "proving/proof/sums/reals_z3.py": "Exp",
        "proving/proof/axes/relations.py": "Reshape",
        "proving/proof/sums/settle.py": "Exp Log",
        "proving/proof/sums/signs.py": "Exp",
        "proving/proof/axes/sliding.py":
            "Add BatchNormalization Clamp Concat ConvTranspose Div Max MaxPool Mul Neg Relu "
            "Scalar Scale Slice Sub",
        "proving/typing/parameters.py": "Pow",
        "proving/typing/scenario.py": "Pad",
    },
    "which numbers tell anything about these operators, as they truncate, choose or compare": {
        "proving/checks/methods.py":
            "Cast Div GlobalAveragePool MaxPool ReduceMean ReduceMin Where",
    },
    "generic instances and frames of these operators, which derivations start from": {
        "egraph/derivation/derive.py": "Concat",
        "egraph/derivation/generic.py": "Ceil Cos Floor Mish Round Sin Softplus Softsign",
    },
    "operators of Python, literals and forms of the rule language, and their names in ONNX": {
        "lab/generation/source.py": "Add Div MatMul Mul Sub",
        "rules/forms.py": "AveragePool MaxPool ReduceMean",
        "ir/graph/plain_names.py":
            "Center Clamp Clip Continued Fill IdentityKernel MaskedAttention Pad Repeat RmsN Rsqrt "
            "Scalar Scale Shift Slice Square StridedSlice",
        "rules/glossary.py": "MaskedAttention",
        "rules/patterns.py": "Scalar",
        "rules/term.py": "Add Div MatMul Mul Sub",
    },
    "kernels, and what runtimes fuse or join, are made of these operators": {
        "racing/examination.py": "Conv LayerNormalization MatMul",
        "cost/roofline.py": "MatMul Relu Reshape",
        "ir/onnx/kernel_export.py": "Slice",
        "lab/search/pricing/kernel_ways.py": "Concat Slice",
        "lab/search/methods/merging.py": "Add Concat Conv Pad Slice",
        "lab/search/methods/taso.py": "Pad Reshape Slice Transpose",
        "select/rebuilding/assignment.py": "Transpose",
        "select/tiling/candidates.py": "Pow",
        "select/tiling/concatenations.py": "Concat Slice",
        "select/rebuilding/planning.py": "MatMul",
        "select/tiling/tiling.py": "Add Concat Conv",
    },
    "builds models, graphs or probes of these operators, or reads a foreign format": {
        "proving/taso/convert.py": "Add Mul Relu Sigmoid Tanh",
        "lab/imports/tensat.py": "Add Mul",
        "lab/imports/tensorright_rule.py":
            "Abs Add And Div Equal Exp Greater GreaterOrEqual Less LessOrEqual Max Min Mul Neg Not "
            "Or Pad Sub",
        "lab/generation/settings.py":
            "Add Concat Conv MatMul Mul ReduceMean ReduceSum Relu Slice Softmax Sub Transpose",
        "rules/extents.py":
            "AveragePool Concat Conv Fill IdentityKernel MatMul MaxPool Pad Reshape Slice "
            "Transpose",
        "lab/testing/eclasses.py": "Gather",
        "lab/testing/graphs.py":
            "Abs Add AveragePool Concat Conv MatMul MaxPool Mul Neg Relu Sigmoid Slice Sub Tanh "
            "Transpose",
        "lab/zoo/_builder.py":
            "Add AveragePool BatchNormalization Concat Conv Div Erf GlobalAveragePool "
            "LayerNormalization MatMul MaxPool Mul Relu Reshape Sigmoid Tanh Transpose",
        "lab/zoo/_encoder.py": "Div Softmax",
        "lab/zoo/_external.py": "Add MatMul Relu",
        "lab/zoo/alexnet.py": "LRN",
        "lab/zoo/bert.py": "Div ReduceMean Sqrt Sub",
        "lab/zoo/dcgan.py": "Resize",
        "lab/zoo/recurrent.py": "ReduceMean Softmax Sub",
        "lab/zoo/squeezenet.py": "GlobalAveragePool",
        "lab/zoo/training.py": "Cast Conv ConvTranspose Greater ReduceMean Sub",
    },
}
# fmt: on
"""Why files name operators: reason to files to the names."""


def names_in(source: str) -> set[str]:
    """The names of operators among the texts of a module, but for what it exports."""
    tree = ast.parse(source)
    exported = {id(part) for node in tree.body if _is_export(node) for part in ast.walk(node)}
    return {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value in OPS
        and id(node) not in exported
    }


def _is_export(node: ast.stmt) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def _files() -> Iterator[str]:
    for file in sorted(PACKAGE.rglob("*.py")):
        name = file.relative_to(PACKAGE).as_posix()
        if not name.startswith(ROOMS):
            yield name


LISTED = {file: names for files in HELD.values() for file, names in files.items()}


@pytest.mark.parametrize("file", sorted({*_files(), *LISTED}))
def test_an_operator_is_named_where_there_is_a_reason(file: str) -> None:
    path = PACKAGE / file
    found = " ".join(sorted(names_in(path.read_text(encoding="utf-8")))) if path.exists() else ""
    assert found == LISTED.get(file, ""), (
        f"{file} names {found or 'none'}: ask for a trait of the operators instead, or list it "
        "in HELD under a reason"
    )


def test_no_file_has_two_reasons() -> None:
    assert len(LISTED) == sum(map(len, HELD.values()))


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('if op == "Conv":\n    pass', {"Conv"}),
        ('_LIST = frozenset({"Add", "Sub", "shape"})', {"Add", "Sub"}),
        ('__all__ = ["Fill"]', set()),
        ('__all__: list[str] = ["Fill"]', set()),
        ('"""Conv and Add."""', set()),
        ('f"(= r (MatMul x y))"', set()),
    ],
)
def test_names_are_found(source: str, names: set[str]) -> None:
    assert names_in(source) == names
