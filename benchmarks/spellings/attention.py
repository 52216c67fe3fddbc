"""Spellings of softmax and of attention."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import helper

from benchmarks.spellings.writer import HEAD_SIZE, HEADS, SHAPE, WIDTH, Spelling, Writer, spelled

__all__ = ["AttentionForm", "attend", "attention", "softmax", "softmax_of", "split_heads"]


def softmax_of(w: Writer, z: str, how: int, axis: int = -1) -> str:
    """softmax(z), in eight spellings."""

    def total(value: str) -> str:
        return w("ReduceSum", value, w.ints(axis), keepdims=1)

    def less_top(value: str) -> str:
        return w("Sub", value, w("ReduceMax", value, axes=[axis], keepdims=1))

    match how:
        case 0:
            return w("Softmax", z, axis=axis)
        case 1:
            e = w("Exp", less_top(z))
            return w("Div", e, total(e))
        case 2:
            e = w("Exp", z)
            return w("Div", e, total(e))
        case 3:
            e = w("Exp", less_top(z))
            return w("Mul", w("Reciprocal", total(e)), e)
        case 4:
            return w("Exp", w("Sub", z, w("Log", total(w("Exp", z)))))
        case 5:
            d = less_top(z)
            return w("Exp", w("Sub", d, w("Log", total(w("Exp", d)))))
        case 6:
            return w("Exp", w("LogSoftmax", z, axis=axis))
        case _:
            e = w("Exp", less_top(z))
            return w("Mul", e, w("Pow", total(e), -1.0))


def softmax() -> Iterator[Spelling]:
    for how, axis, factor in itertools.product(range(1, 8), (-1, 1), (1.0, 0.3)):

        def write(w: Writer, how: int = how, axis: int = axis, factor: float = factor) -> str:
            return softmax_of(w, "x" if factor == 1.0 else w("Mul", "x", factor), how, axis)

        name = f"form {how}, axis {axis}, factor {factor}"
        yield spelled("softmax", name, write, "Softmax", axis=axis % 3)


SCALES = (
    "logits", "logits-over", "q", "k", "both", "both-over", "q-before-split", "weights", "k-late",
)  # fmt: skip
MASKS = ("none", "input", "input-first", "causal", "two-masks")


@dataclass(frozen=True)
class AttentionForm:
    """How one attention is spelled.

    Batch and heads may be ``merged`` into one axis: ``"all"`` the way, or ``"apart"`` for the mask
    only.
    """

    scale: str = "logits"
    softmax: int = 0
    keys: int = 0
    mask: str = "none"
    packed: bool = False
    groups: int = 1
    rotary: bool = False
    merged: str = ""


def split_heads(w: Writer, x: str, perm: Sequence[int], heads: int = HEADS) -> str:
    split = w("Reshape", x, w.ints(SHAPE[0], SHAPE[1], heads, HEAD_SIZE))
    return w("Transpose", split, perm=list(perm))


def _projections(w: Writer, how: AttentionForm, factor: float) -> tuple[str, str, str]:
    """Queries, keys and values before they are split into heads."""
    shared = WIDTH // how.groups
    if how.packed:
        weight = 0.5 * w.rng.standard_normal((WIDTH, WIDTH + 2 * shared)).astype(np.float32)
        if how.scale == "weights":
            weight[:, :WIDTH] *= factor
        packed = w("MatMul", "x", w.constant(weight))
        names = [f"part{i}" for i in range(3)]
        sizes = w.ints(WIDTH, shared, shared)
        w.nodes.append(helper.make_node("Split", [packed, sizes], names, axis=2))
        return names[0], names[1], names[2]
    values = []
    for index, width in enumerate((WIDTH, shared, shared)):
        weight = w.rng.standard_normal((WIDTH, width)).astype(np.float32) * 0.2
        if how.scale == "weights" and index == 0:
            weight = (weight * factor).astype(np.float32)
        product = w("MatMul", "x", w.constant(weight))
        values.append(w("Add", product, w.vector(width)))
    return values[0], values[1], values[2]


def _turned(w: Writer, x: str) -> str:
    """Rotary embedding: x cos + (-x2, x1) sin (Su et al. 2021)."""
    half, angles = HEAD_SIZE // 2, w.rng.standard_normal((1, 1, SHAPE[1], HEAD_SIZE))
    first = w("Slice", x, w.ints(0), w.ints(half), w.ints(3))
    second = w("Slice", x, w.ints(half), w.ints(HEAD_SIZE), w.ints(3))
    swapped = w("Concat", w("Neg", second), first, axis=3)
    cosine = w("Mul", x, w.constant(np.cos(angles).astype(np.float32)))
    return w("Add", cosine, w("Mul", swapped, w.constant(np.sin(angles).astype(np.float32))))


def _repeated(w: Writer, x: str, groups: int) -> str:
    """Heads of keys or values, each as often as queries share it."""
    batch, tokens, shared = SHAPE[0], SHAPE[1], HEADS // groups
    wide = w("Unsqueeze", x, w.ints(2))
    wide = w("Expand", wide, w.ints(batch, shared, groups, tokens, HEAD_SIZE))
    return w("Reshape", wide, w.ints(batch, HEADS, tokens, HEAD_SIZE))


def attend(w: Writer, how: AttentionForm, factor: float = HEAD_SIZE**-0.5) -> str:
    q, k, v = _projections(w, how, factor)
    if how.scale == "q-before-split":
        q = w("Mul", q, factor)
    shared = HEADS // how.groups
    q, v = split_heads(w, q, (0, 2, 1, 3)), split_heads(w, v, (0, 2, 1, 3), shared)
    direct = how.keys == 1 and how.groups == 1 and not how.rotary
    k = split_heads(w, k, (0, 2, 3, 1) if direct else (0, 2, 1, 3), shared)
    if how.rotary:
        q, k = _turned(w, q), _turned(w, k)
    if how.groups > 1:
        k, v = _repeated(w, k, how.groups), _repeated(w, v, how.groups)
    if how.scale == "k":
        k = w("Mul", k, factor)
    if how.keys == 2:
        batch, tokens = SHAPE[:2]
        k = w("Reshape", k, w.ints(batch * HEADS, tokens, HEAD_SIZE))
        k = w("Transpose", k, perm=[0, 2, 1])
        k = w("Reshape", k, w.ints(batch, HEADS, HEAD_SIZE, tokens))
    elif not direct:
        k = w("Transpose", k, perm=[0, 1, 3, 2])
    match how.scale:
        case "q":
            q = w("Div", q, 1.0 / factor)
        case "k-late":
            k = w("Mul", factor, k)
        case "both":
            q, k = w("Mul", q, math.sqrt(factor)), w("Mul", k, math.sqrt(factor))
        case "both-over":
            q = w("Div", q, w("Sqrt", w("Sqrt", float(HEAD_SIZE))))
            k = w("Div", k, HEAD_SIZE**0.25)
    if how.merged:
        q, v = (w("Reshape", t, w.ints(-1, SHAPE[1], HEAD_SIZE)) for t in (q, v))
        k = w("Reshape", k, w.ints(-1, HEAD_SIZE, SHAPE[1]))
    z = w("MatMul", q, k)
    if how.scale in ("logits", "twice"):
        z = w("Mul", z, factor)
    if how.scale == "twice":
        z = w("Mul", z, factor)
    if how.scale == "logits-over":
        z = w("Div", z, w("Sqrt", float(HEAD_SIZE)))
    if how.merged == "apart":
        z = w("Reshape", z, w.ints(SHAPE[0], HEADS, SHAPE[1], SHAPE[1]))
    z = _masked(w, z, how.mask)
    if how.merged == "apart":
        z = w("Reshape", z, w.ints(-1, SHAPE[1], SHAPE[1]))
    mixed = w("MatMul", softmax_of(w, z, how.softmax), v)
    if how.merged:
        mixed = w("Reshape", mixed, w.ints(SHAPE[0], HEADS, SHAPE[1], HEAD_SIZE))
    joined = w("Transpose", mixed, perm=[0, 2, 1, 3])
    joined = w("Reshape", joined, w.ints(*SHAPE))
    return w("Add", w("MatMul", joined, w.vector(WIDTH, WIDTH)), w.vector())


def _masked(w: Writer, z: str, mask: str) -> str:
    batch, tokens = SHAPE[:2]
    match mask:
        case "input":
            return w("Add", z, w.input("mask", batch, 1, 1, tokens))
        case "input-first":
            return w("Add", w.input("mask", batch, 1, tokens, tokens), z)
        case "causal":
            upper = np.triu(np.full((1, 1, tokens, tokens), -1e9, np.float32), 1)
            return w("Add", z, w.constant(upper))
        case "alike":
            return w("Add", z, w.input("mask", tokens, tokens))
        case "each":
            upper = np.triu(np.full((tokens, tokens), -1e9, np.float32), 1)
            each = w.input("mask", batch * HEADS, 1, tokens)
            return w("Add", w("Add", z, w.constant(upper)), each)
        case "two-masks":
            upper = np.triu(np.full((tokens, tokens), -1e9, np.float32), 1)
            return w("Add", w("Add", z, w.constant(upper)), w.input("mask", batch, 1, 1, tokens))
    return z


def _attentions() -> Iterator[AttentionForm]:
    for scale, softmax, keys, mask in itertools.product(
        SCALES, (0, 1, 3, 4), (0, 1), ("none", "input", "causal")
    ):
        if (SCALES.index(scale) + softmax + keys) % 2 == 0 or mask == "none":
            yield AttentionForm(scale, softmax, keys, mask)
    for scale, mask in itertools.product(("logits", "q", "both"), ("input-first", "two-masks")):
        yield AttentionForm(scale, 0, 0, mask)
    plain = [s for s in SCALES if s != "weights"]
    for scale, mask in itertools.product(SCALES, ("none", "causal")):
        yield AttentionForm(scale, 0, 2, mask)
        yield AttentionForm(scale, 1, 2, mask, groups=2)
    for scale, mask in itertools.product(plain, ("none", "causal")):
        yield AttentionForm(scale, 0, 1, mask, packed=True)
        yield AttentionForm(scale, 0, 0, mask, groups=2)
        yield AttentionForm(scale, 0, 0, mask, rotary=True)
    for scale in plain:
        yield AttentionForm(scale, 1, 0, "input", packed=True, groups=4, rotary=True)
    for softmax, keys, mask in itertools.product((0, 1), (0, 1), ("none", "input", "causal")):
        yield AttentionForm("weights", softmax, keys, mask, packed=True)
    for scale, packed in itertools.product(("logits", "q-before-split", "weights"), (False, True)):
        for mask in ("none", "alike", "each"):
            yield AttentionForm(scale, 0, 0, mask, packed, merged="all")
        for mask in ("input", "input-first", "causal", "alike", "two-masks"):
            yield AttentionForm(scale, 0, 0, mask, packed, merged="apart")


def attention() -> Iterator[Spelling]:
    for how in _attentions():

        def write(w: Writer, how: AttentionForm = how) -> str:
            return attend(w, how)

        kind = "grouped" if how.groups > 1 else "rotary" if how.rotary else ""
        kind = "packed" if how.packed and not kind else kind
        kind = f"{kind} merged {how.merged}" if how.merged else kind
        op = "Attention" if how.mask == "none" else "MaskedAttention"
        scale = 1.0 if how.scale == "weights" else HEAD_SIZE**-0.5
        attrs: dict[str, float | str] = {"scale": scale}
        # Folded into weight and bias when loading, or left before the rotary embedding.
        if how.scale == "q-before-split" and (how.rotary or not how.packed):
            attrs["scale"] = 1.0
        if how.groups > 1:
            attrs["heads"] = HEADS // how.groups
        name = f"{kind} scale {how.scale}, softmax {how.softmax}, keys {how.keys}, mask {how.mask}"
        yield spelled("attention", name.strip(), write, op, **attrs)
