"""Operators and sizes as users know them, for messages and tables.

The search has operators that ONNX does not have, and names sizes that a file leaves without a name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["OPERATORS", "axis_name", "plain_kernel", "plain_operator", "plain_sizes"]

OPERATORS: Mapping[str, str] = {
    "Center": "Sub of the mean",
    "Clamp": "Clip",
    "Continued": "Pad",
    "Fill": "ConstantOfShape",
    "IdentityKernel": "identity weights",
    "MaskedAttention": "Attention with a mask",
    "Repeat": "repetition along an axis",
    "RmsN": "Div by the root of the mean square",
    "Rsqrt": "Reciprocal of Sqrt",
    "Scalar": "constant",
    "Scale": "Mul by a constant",
    "Shift": "Add of a constant",
    "Square": "Mul by itself",
    "StridedSlice": "Slice",
}
"""Operators that ONNX does not have, in words of operators that it has."""

_OPERATOR = re.compile(rf"\b({'|'.join(OPERATORS)})\b")
_SIZE = re.compile(r"\?([^\s?,()\[\]*+]+)\.(\d+)(?![^\s?,()\[\]*+]*:\d)")
_VALUE = re.compile(r"\?([^\s?,()\[\]*+]+):(\d+)(~?)")


def plain_operator(name: str) -> str:
    """Return the name of an operator of the search as ONNX calls it."""
    return OPERATORS.get(name, name)


def plain_kernel(text: str) -> str:
    """Replace the operators that ONNX does not have in the text of a kernel or an equation."""
    return plain_sizes(_OPERATOR.sub(lambda found: OPERATORS[found[0]], text))


def axis_name(size: str) -> str:
    """Return the name with which users give a size: ``VALUE.AXIS`` for an axis without a name."""
    return size.removeprefix("?")


def plain_sizes(text: str) -> str:
    """Describe the sizes without a name in a text about types by their values and axes."""
    return _VALUE.sub(r"value \2 of \1\3", _SIZE.sub(r"axis \2 of \1", text))
