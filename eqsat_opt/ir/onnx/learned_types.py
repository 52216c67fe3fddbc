"""Result types of the operators of ai.onnx.ml, of most of which onnx infers no more than the dtype.

Converters of scikit-learn, LightGBM, XGBoost and CatBoost write them. The nodes pass through
unchanged, and without a type all nodes after them would as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx_ir

from eqsat_opt.ir.ops._base import IllTyped, require
from eqsat_opt.ir.values.dims import Dim, dim_product
from eqsat_opt.ir.values.types import DTYPE_NAMES, TensorType

__all__ = ["LEARNED", "Operands", "Rule", "need"]

Operands = Sequence[TensorType | None]
Rule = Callable[[onnx_ir.Node, Operands], "list[TensorType | None]"]
"""A function from a node and the types of its operands to those of its first results.

It raises `IllTyped`, `IndexError`, `ValueError` or `ZeroDivisionError` if they do not follow.
"""


def need(operands: Operands, index: int) -> TensorType:
    """Return the type of an operand that has to be known."""
    operand = operands[index]
    if operand is None:
        raise IllTyped("the type of an operand is not known")
    return operand


def _rows(operands: Operands) -> Dim:
    """Return the number of rows; a vector is one row."""
    first = need(operands, 0)
    require(first.rank in (1, 2), "rows of {}", first)
    return 1 if first.rank == 1 else first.shape[0]


def _count(node: onnx_ir.Node, *names: str) -> int:
    """Return the length of the first of several attributes that is present, 0 if none is."""
    lengths = (len(node.attributes[name].value) for name in names if name in node.attributes)
    return next(filter(None, lengths), 0)


def _as_first(node: onnx_ir.Node, operands: Operands) -> list[TensorType | None]:
    return [need(operands, 0)]


def _float_as_first(node: onnx_ir.Node, operands: Operands) -> list[TensorType | None]:
    return [TensorType("float32", need(operands, 0).shape)]


def _encoded(node: onnx_ir.Node, operands: Operands) -> list[TensorType | None]:
    """Type labels by what they are mapped to; the first version maps between int64 and string."""
    first = need(operands, 0)
    if "values_tensor" in node.attributes:
        code = node.attributes["values_tensor"].as_tensor().dtype.value
        return [TensorType(DTYPE_NAMES[code], first.shape)]
    for name, dtype in _VALUES.items():
        if name in node.attributes:
            return [TensorType(dtype, first.shape)]
    return _mapped(node, operands)


_VALUES = {"values_strings": "string", "values_int64s": "int64", "values_floats": "float32"}


def _mapped(node: onnx_ir.Node, operands: Operands) -> list[TensorType | None]:
    first = need(operands, 0)
    return [TensorType("int64" if first.dtype == "string" else "string", first.shape)]


def _one_hot(node: onnx_ir.Node, operands: Operands) -> list[TensorType | None]:
    categories = _count(node, "cats_int64s", "cats_strings")
    require(categories > 0, "no categories")
    return [TensorType("float32", (*need(operands, 0).shape, categories))]


def _extracted(node: onnx_ir.Node, operands: Operands) -> list[TensorType | None]:
    """Type elements along the last axis, at the places that the second operand lists."""
    first, places = need(operands, 0), need(operands, 1)
    rows = first.shape[:-1] if first.rank > 1 else (1,)
    return [TensorType(first.dtype, (*rows, dim_product(places.shape)))]


def _joined(node: onnx_ir.Node, operands: Operands) -> list[TensorType | None]:
    widths = node.attributes["inputdimensions"].as_ints()
    return [TensorType("float32", (_rows(operands), sum(widths)))]


def _regressed(name: str) -> Rule:
    """Return the rule of a regressor with an attribute for the number of targets, 1 by default."""

    def typed(node: onnx_ir.Node, operands: Operands) -> list[TensorType | None]:
        return [TensorType("float32", (_rows(operands), node.attributes.get_int(name, 1)))]

    return typed


def _ensemble(node: onnx_ir.Node, operands: Operands) -> list[TensorType | None]:
    targets = node.attributes.get_int("n_targets", 1)
    return [TensorType(need(operands, 0).dtype, (_rows(operands), targets))]


def _classified(*strings: str) -> Rule:
    """Return the rule of a classifier: a label for each row, and a score for each class.

    Args:
        strings: attributes that hold labels if these are strings.
    """

    def typed(node: onnx_ir.Node, operands: Operands) -> list[TensorType | None]:
        rows = _rows(operands)
        is_text = _count(node, *strings) > 0
        label = TensorType("string" if is_text else "int64", (rows,))
        classes = _count(node, *strings, "classlabels_int64s", "classlabels_ints")
        if classes < 2:
            return [label]
        if _count(node, "vectors_per_class") and not _count(node, "prob_a") and classes > 2:
            classes = classes * (classes - 1) // 2  # a score for each pair
        return [label, TensorType("float32", (rows, classes))]

    return typed


LEARNED: Mapping[str, Rule] = {
    "ArrayFeatureExtractor": _extracted,
    "Binarizer": _as_first,
    "CategoryMapper": _mapped,
    "FeatureVectorizer": _joined,
    "Imputer": _as_first,
    "LabelEncoder": _encoded,
    "LinearClassifier": _classified("classlabels_strings"),
    "LinearRegressor": _regressed("targets"),
    "Normalizer": _float_as_first,
    "OneHotEncoder": _one_hot,
    "SVMClassifier": _classified("classlabels_strings"),
    "SVMRegressor": _regressed("n_targets"),
    "Scaler": _float_as_first,
    "TreeEnsemble": _ensemble,
    "TreeEnsembleClassifier": _classified("classlabels_strings"),
    "TreeEnsembleRegressor": _regressed("n_targets"),
}
"""Rules by operator; there is none where an operand is a map (DictVectorizer, CastMap)."""
