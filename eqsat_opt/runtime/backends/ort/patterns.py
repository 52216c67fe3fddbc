"""What onnxruntime's CPU provider fuses beyond single operators."""

from __future__ import annotations

import math

from eqsat_opt.ir.types import TensorType
from eqsat_opt.runtime.backends.patterns import (
    Anything,
    Const,
    KernelPattern,
    Literal,
    OpPattern,
    Pattern,
    op,
)

__all__ = ["ACTIVATIONS", "ort_patterns"]

ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid")
"""What onnxruntime appends to a convolution on CPU."""


def _is_channel_bias(own: TensorType, root: TensorType) -> bool:
    return root.rank >= 3 and own.shape == (1, root.shape[1], *(1,) * (root.rank - 2))


def _is_row(own: TensorType, root: TensorType) -> bool:
    return own.rank >= 1 and own.shape[-1] == root.shape[-1] and all(d == 1 for d in own.shape[:-1])


def _convolutions() -> list[KernelPattern]:
    conv = op("Conv", Anything("x"), Const("w"))
    biased = op("Add", conv, Const("b", _is_channel_bias))
    sums = {"conv-bias": biased}
    for name, base in (("conv-residual", conv), ("conv-bias-residual", biased)):
        sums[name] = op("Add", base, Anything("z"))
    patterns = [KernelPattern(name, pattern) for name, pattern in sums.items()]
    for name, pattern in {"conv": conv, **sums}.items():
        patterns.append(KernelPattern(f"{name}-activation", OpPattern(ACTIVATIONS, (pattern,))))
    return patterns


def _products() -> list[KernelPattern]:
    biased = op("Add", op("MatMul", Anything("x"), Const("w")), Const("b", _is_row))
    return [
        KernelPattern("matmul-bias", biased, lambda root: root.rank == 2),
        KernelPattern(
            "matmul-bias-activation",
            OpPattern(("Relu", "Sigmoid", "Tanh"), (biased,)),
            lambda r: r.rank == 2,
        ),
    ]


def _gelus() -> list[KernelPattern]:
    x, half, one = Anything("x"), Literal(0.5), Literal(1.0)
    inner = (op("Div", x, Literal(math.sqrt(2.0))), op("Mul", x, Literal(math.sqrt(0.5))))
    patterns = []
    for i, argument in enumerate(inner):
        gate = op("Add", op("Erf", argument), one)
        spellings = (
            op("Mul", op("Mul", x, half), gate),
            op("Mul", x, op("Mul", half, gate)),
            op("Mul", half, op("Mul", x, gate)),
        )
        patterns += [
            KernelPattern(f"gelu-{i}{j}", spelling) for j, spelling in enumerate(spellings)
        ]
    return patterns


def _mean(operand: Pattern) -> OpPattern:
    """A mean over the same axes as the others of the kernel."""
    return OpPattern(("ReduceMean",), (operand,), same="axes")


def _norms() -> list[KernelPattern]:
    x = Anything("x")
    centred = op("Sub", x, _mean(x))
    squares = (op("Pow", centred, Literal(2.0)), op("Mul", centred, centred))
    patterns = []
    for i, square in enumerate(squares):
        deviation = op("Sqrt", op("Add", _mean(square), Anything("epsilon")))
        normal = op("Div", centred, deviation)
        scaled = op("Mul", normal, Const("scale", _is_row))
        patterns.append(
            KernelPattern(f"layer-norm-{i}", op("Add", scaled, Const("shift", _is_row)))
        )
    return patterns


def _attentions() -> list[KernelPattern]:
    logits = op("MatMul", Anything("q"), Anything("k"))
    scaled = OpPattern(("Mul", "Div"), (logits, Const("s")))
    patterns = []
    for name, scores in (
        ("plain", logits),
        ("scaled", scaled),
        ("masked", op("Add", scaled, Anything("mask"))),
    ):
        patterns.append(
            KernelPattern(f"attention-{name}", op("MatMul", op("Softmax", scores), Anything("v")))
        )
    return patterns


def ort_patterns() -> tuple[KernelPattern, ...]:
    """What onnxruntime's CPU provider runs as one kernel beyond single operators.

    Concatenations of any length and one Split for adjacent Slices have no fixed shape; selection
    makes them itself.
    """
    return (*_convolutions(), *_products(), *_gelus(), *_norms(), *_attentions())
