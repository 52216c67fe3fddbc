"""Typing rules of convolutions and pools, in the engine's language."""

from __future__ import annotations

from eqsat_opt.egraph.encoding.expressions import LITERAL
from eqsat_opt.ir.ops import Op

__all__ = ["convolution_rules", "pool_rules", "typing_rule"]

_COLUMNS = {"ceil": "0", "dilations": "di", "kernel": "k", "pads": "pd", "strides": "st"}
"""Variables of the rules for attributes of windows."""


def typing_rule(name: str, body: str, shape: str, extra: str = "") -> str:
    """Return a rule that gives ``r`` a shape and the element type ``t``."""
    head = f"(set (shape r) {shape}) (set (dtype r) t) {extra}"
    return f'(rule ({body}) ({head}) :ruleset typing :name "type-{name}")'


def _lengths(axes: int) -> str:
    return f"(= {axes} (vec-length st)) (= {axes} (vec-length di)) (= {2 * axes} (vec-length pd))"


def _positions(axis: int, axes: int, kernel: str) -> str:
    """Return facts that bind ``h0``, ``h1``, … to the number of window positions along an axis.

    ``a`` is the shape of the data; ``st``, ``pd`` and ``di`` are attributes.
    """
    stride, dilation, size, left, positions = (f"{name}{axis}" for name in "tdnlh")
    padded = size
    body = f"(= {size} (vec-get a {axis + 2}))"
    for name, vector, index, least in (
        (stride, "st", axis, 1), (dilation, "di", axis, 1),
        (f"b{axis}", "pd", axis, 0), (f"e{axis}", "pd", axis + axes, 0),
    ):  # fmt: skip
        body += f" (= {name} (vec-get {vector} {index})) (<= {least} {name})"
        padded = f"(+ {padded} {name})" if vector == "pd" else padded
    body += f" (= {left} (- {padded} (+ (* {dilation} (- {kernel} 1)) 1))) (<= 0 {left})"
    # The quotient of a symbolic size is an atom that the engine cannot compute, so such a size
    # requires stride 1.
    body += f" (= 0 (* (- {stride} 1) (/ {size} {LITERAL})))"
    return f"{body} (= {positions} (+ (/ {left} {stride}) 1))"


def convolution_rules() -> list[str]:
    """Return the rules of convolutions along one to three axes."""
    rules = []
    for axes in (1, 2, 3):
        # Columns are in the order of attributes: dilations, group, pads, strides.
        body = (
            "(= r (Conv x w di g pd st)) (= a (shape x)) (= b (shape w))"
            f" (= t (dtype x)) (= t (dtype w)) {_lengths(axes)} (> g 0)"
            f" (= {axes + 2} (vec-length a)) (= {axes + 2} (vec-length b))"
            " (= n (vec-get a 0)) (= c (vec-get a 1)) (= c (* g (vec-get b 1)))"
            " (= o (vec-get b 0)) (= 0 (% o g))"
            f" (= 0 (* (- g 1) (/ o {LITERAL})))"
        )
        windows = [_positions(i, axes, f"(vec-get b {i + 2})") for i in range(axes)]
        sizes = " ".join(f"h{i}" for i in range(axes))
        rules.append(
            typing_rule(f"Conv-{axes}d", " ".join([body, *windows]), f"(vec-of n o {sizes})")
        )
    return rules


def pool_rules(op: Op) -> list[str]:
    """Return the rules of a pool of images.

    Ceil mode drops windows by a rule of its own, so such pools are typed only where the model
    itself has them.
    """
    columns = " ".join(_COLUMNS.get(key, key) for key in sorted(op.attrs))
    body = (
        f"(= r ({op.name} x {columns})) (= a (shape x)) (= t (dtype x))"
        f" (= 4 (vec-length a)) (= 2 (vec-length k)) {_lengths(2)}"
        " (= n (vec-get a 0)) (= c (vec-get a 1))"
    )
    if "floats" in op.traits:
        body += " (is-float t)"
    for i in range(2):
        body += f" (= k{i} (vec-get k {i})) (<= 1 k{i}) {_positions(i, 2, f'k{i}')}"
    return [typing_rule(op.name, body, "(vec-of n c h0 h1)")]
