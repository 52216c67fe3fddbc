"""Typing rules of new e-nodes, in the engine's language.

The types of the model's own values are loaded as facts; these rules only type the e-nodes that
rewrites add. An ill-typed term gets no shape, so it is never united with anything: the right side
of an equation must be typed, and its type must equal that of the left. All arithmetic is in rule
bodies, where an overflow or a bad index means "no match" instead of a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import combinations

from eqsat_opt.egraph.encoding.expressions import LITERAL
from eqsat_opt.egraph.encoding.extents import plus, times
from eqsat_opt.egraph.encoding.schema import Schema, want_table
from eqsat_opt.egraph.encoding.typing_derived import derived_rules
from eqsat_opt.egraph.encoding.typing_windows import convolution_rules, pool_rules, typing_rule
from eqsat_opt.ir.ops import IllTyped, Op, get_op, with_trait
from eqsat_opt.ir.ops._base import Trait
from eqsat_opt.ir.values.types import TensorType

__all__ = ["SETTLED", "is_typed", "on_integers", "typing_rules"]

SETTLED = "(saturate (saturate (run typing)) (run commit))"
"""A schedule: type new e-nodes, then unite requested pairs of equal type, until nothing changes."""

_BROADCASTING = with_trait("broadcasting") - with_trait("truth") - with_trait("moving")
_NO_STRING = '(!= t "string")'
_FLOAT = "(is-float t)"


def _broadcast_rules() -> list[str]:
    last_a, last_b = "(vec-get a (- (vec-length a) 1))", "(vec-get b (- (vec-length b) 1))"
    rest = "(= s (broadcast (vec-pop a) (vec-pop b)))"
    step = f"(broadcast-demand a b) (= m {last_a}) (= n {last_b}) {rest}"
    return [
        "(rule ((broadcast-demand a b) (= c (vec-pop a)) (= d (vec-pop b)))"
        " ((broadcast-demand c d))"
        ' :ruleset typing :name "broadcast-demand")',
        "(rule ((broadcast-demand a b) (= 0 (vec-length a))) ((set (broadcast a b) b))"
        ' :ruleset typing :name "broadcast-left-ends")',
        "(rule ((broadcast-demand a b) (= 0 (vec-length b))) ((set (broadcast a b) a))"
        ' :ruleset typing :name "broadcast-right-ends")',
        f"(rule ({step} (= m n) (= q (vec-push s m))) ((set (broadcast a b) q))"
        ' :ruleset typing :name "broadcast-equal")',
        f"(rule ({step} (= m 1) (!= n 1) (= q (vec-push s n))) ((set (broadcast a b) q))"
        ' :ruleset typing :name "broadcast-from-left")',
        f"(rule ({step} (= n 1) (!= m 1) (= q (vec-push s m))) ((set (broadcast a b) q))"
        ' :ruleset typing :name "broadcast-from-right")',
        f"(rule ({step} (joins m n k) (= q (vec-push s k))) ((set (broadcast a b) q))"
        ' :ruleset typing :name "broadcast-joins")',
    ]


def _product_rules() -> list[str]:
    return [
        "(rule ((product-demand a) (= b (vec-pop a))) ((product-demand b))"
        ' :ruleset typing :name "product-demand")',
        "(rule ((product-demand a) (= 0 (vec-length a))) ((set (product a) 1))"
        ' :ruleset typing :name "product-empty")',
        "(rule ((product-demand a) (= n (vec-get a (- (vec-length a) 1)))"
        f" (= q (product (vec-pop a))) {' '.join(times('n', 'q', 'p'))})"
        ' ((set (product a) p)) :ruleset typing :name "product-step")',
    ]


def _binary_rules(op: str) -> list[str]:
    columns = " ".join(["x", "y", *sorted(get_op(op).attrs)])
    operands = (
        f"(= r ({op} {columns})) (= a (shape x)) (= b (shape y)) (= t (dtype x)) (= t (dtype y))"
    )
    operands += f" {_NO_STRING}"
    return [
        typing_rule(f"{op}-same", f"{operands} (= a b)", "a"),
        f"(rule ({operands} (!= a b)) ((broadcast-demand a b))"
        f' :ruleset typing :name "type-{op}-demand")',
        typing_rule(f"{op}-broadcast", f"{operands} (!= a b) (= s (broadcast a b))", "s"),
    ]


def _matmul_rules() -> list[str]:
    operands = (
        "(= r (MatMul x y)) (= a (shape x)) (= b (shape y)) (= t (dtype x)) (= t (dtype y))"
        f' (= n (vec-length a)) (> n 1) {_NO_STRING} (!= t "bool")'
    )
    inner = "(= k (vec-get a (- n 1)))"
    return [
        typing_rule(
            "MatMul-matrix",
            f"{operands} (= 2 (vec-length b)) {inner} (= k (vec-get b 0)) (= p (vec-get b 1))"
            " (= s (vec-set a (- n 1) p))",
            "s",
        ),
        f"(rule ({operands} (> (vec-length b) 2) {inner} (= k (vec-get b (- (vec-length b) 2)))"
        " (= m (vec-get a (- n 2))) (= p (vec-get b (- (vec-length b) 1)))"
        " (= c (vec-pop (vec-pop a))) (= d (vec-pop (vec-pop b))))"
        " ((broadcast-demand c d) (batched r t c d m p))"
        ' :ruleset typing :name "type-MatMul-demand")',
        # The table leads from a new broadcast shape directly to the products that wait for it.
        typing_rule(
            "MatMul-batched",
            "(batched r t c d m p) (= e (broadcast c d)) (= s (vec-push (vec-push e m) p))",
            "s",
        ),
    ]


def _transpose_rules() -> list[str]:
    rules = []
    for rank in range(1, 7):
        body = (
            "(= r (Transpose x p)) (= a (shape x)) (= t (dtype x))"
            f" (= {rank} (vec-length a)) (= {rank} (vec-length p))"
        )
        body += "".join(f" (vec-contains p {i})" for i in range(rank))
        picks = " ".join(f"(vec-get a (vec-get p {i}))" for i in range(rank))
        rules.append(typing_rule(f"Transpose-{rank}d", f"{body} (= s (vec-of {picks}))", "s"))
    return rules


def _literal_rules(name: str, body: str, shape: str, extra: str = "") -> list[str]:
    """Return typing rules for a literal ``v`` that is a number of an element type ``t``."""
    whole = "(whole-range t low end) (<= low v) (< v end) (= v (to-f64 (to-i64 v)))"
    return [
        typing_rule(f"{name}-float", f"{body} {_FLOAT}", shape, extra=extra),
        typing_rule(f"{name}-whole", f"{body} {whole}", shape, extra=extra),
    ]


def _pad_rules() -> list[str]:
    rules = []
    for rank in range(1, 6):
        body = (
            "(= r (Pad x p v)) (= a (shape x)) (= t (dtype x))"
            f" (= {rank} (vec-length a)) (= {2 * rank} (vec-length p))"
        )
        for i in range(rank):
            pads = f"(+ (vec-get p {i}) (vec-get p {i + rank}))"
            # Padding may remove elements, but never all; an unknown extent may be encoded below 0.
            is_some = f"(or (bool-> d{i} 0) (bool-< d{i} {-LITERAL}))"
            body += f" (= d{i} (+ (vec-get a {i}) {pads})) (guard {is_some})"
        sizes = " ".join(f"d{i}" for i in range(rank))
        rules += _literal_rules(f"Pad-{rank}d", f"{body} (= s (vec-of {sizes}))", "s")
    return rules


_SINGLE = {
    "Concat": typing_rule(
        "Concat",
        "(= r (Concat x y i)) (= a (shape x)) (= b (shape y)) (= t (dtype x)) (= t (dtype y))"
        " (>= i 0) (< i (vec-length a)) (< i (vec-length b)) (= (vec-set a i 0) (vec-set b i 0))"
        f" (= s (vec-set a i {plus('(vec-get a i)', '(vec-get b i)')}))",
        "s",
    ),
    "Slice": typing_rule(
        "Slice",
        "(= r (Slice x i h l)) (= a (shape x)) (= t (dtype x))"
        " (>= l 0) (< l h) (= d (vec-get a i)) (<= h d)"
        f" (< d {LITERAL}) (= s (vec-set a i (- h l)))",
        "s",
    ),
    "Repeat": typing_rule(
        "Repeat",
        "(= r (Repeat x i n)) (= a (shape x)) (= t (dtype x)) (> n 0)"
        f" (< n {LITERAL}) (= d (vec-get a i)) (<= 0 d) (< d {LITERAL})"
        " (= s (vec-set a i (* n d)))",
        "s",
    ),
}


def _reshape_rules() -> list[str]:
    operands = "(= r (Reshape x s)) (= a (shape x)) (= t (dtype x))"
    return [
        f"(rule ({operands}) ((product-demand a) (product-demand s))"
        ' :ruleset typing :name "type-Reshape-demand")',
        typing_rule("Reshape", f"{operands} (= n (product a)) (= n (product s))", "s"),
    ]


def _axes(count: int) -> str:
    """Return facts that ``x`` has that many distinct axes, all valid for the shape ``a``."""
    axes = [f"(vec-get x {i})" for i in range(count)]
    present = [f"(>= {axis} 0) (< {axis} (vec-length a))" for axis in axes]
    distinct = [f"(!= {one} {other})" for one, other in combinations(axes, 2)]
    return " ".join([f"(= {count} (vec-length x))", *present, *distinct])


def _reduce_rules(op: Op) -> list[str]:
    """Return the rules of a reduction over up to three axes, which it keeps.

    A greatest or least element exists only where the reduced extents are not 0.
    """
    rules = []
    for count in (1, 2, 3):
        shape = "a"
        for i in range(count):
            shape = f"(vec-set {shape} (vec-get x {i}) 1)"
        operand = f"(= r ({op.name} y x 1)) (= a (shape y)) (= t (dtype y))"
        body = f"{operand} {_axes(count)} (= s {shape})"
        if "order" in op.traits:
            body += "".join(f" (!= 0 (vec-get a (vec-get x {i})))" for i in range(count))
        rules.append(typing_rule(f"{op.name}-{count}", body, "s"))
    return rules


def _along_rules(op: Op) -> list[str]:
    """Return the rules of an operator along up to four axes with the type of its float operand."""
    columns = " ".join("x" if key == "axes" else key[0] for key in sorted(op.attrs))
    body = f"(= r ({op.name} y {columns})) (= a (shape y)) (= t (dtype y)) {_FLOAT}"
    return [typing_rule(f"{op.name}-{n}", f"{body} {_axes(n)}", "a") for n in (1, 2, 3, 4)]


def _trailing_rules(op: Op) -> list[str]:
    """Return the rule of a normalisation along the last axis, with vectors as parameters."""
    parameters = ("g", "b")[: op.arity[1] - 1]
    body = (
        f"(= r ({op.name} x {' '.join(parameters)} i e)) (= a (shape x)) (= t (dtype x)) {_FLOAT}"
        " (= p (vec-of (vec-get a i))) (= (+ i 1) (vec-length a))"
    )
    for parameter in parameters:
        body += f" (= p (shape {parameter})) (= t (dtype {parameter}))"
    return [typing_rule(op.name, body, "a")]


def _expand_rules() -> list[str]:
    operands = "(= r (Expand x s)) (= a (shape x)) (= t (dtype x))"
    return [
        f'(rule ({operands}) ((broadcast-demand a s)) :ruleset typing :name "type-Expand-demand")',
        typing_rule("Expand", f"{operands} (= s (broadcast a s))", "s"),
    ]


def _attention_types(op: str, mask: str) -> list[str]:
    body = (
        f"(= r ({op} q k v{mask} c)) (= a (shape q)) (= b (shape k)) (= d (shape v))"
        f" (= t (dtype q)) (= t (dtype k)) (= t (dtype v)) {_FLOAT} (= 4 (vec-length a))"
        " (= 4 (vec-length b)) (= 4 (vec-length d)) (= (vec-get a 0) (vec-get b 0))"
        " (= (vec-get a 0) (vec-get d 0)) (= (vec-get a 3) (vec-get b 3))"
        " (= (vec-get b 1) (vec-get d 1)) (= (vec-get b 2) (vec-get d 2))"
        " (= h (vec-get a 1)) (= g (vec-get b 1)) (= 0 (% h g))"
        # A symbolic number of heads cannot be divided, so the keys must then have as many.
        f" (= 0 (* (- h g) (/ h {LITERAL})))"
    )
    result = "(vec-set a 3 (vec-get d 3))"
    if not mask:
        return [typing_rule(op, body, result)]
    logits = "(= l (vec-set a 3 (vec-get b 2))) (= n (shape m)) (= t (dtype m))"
    return [
        f"(rule ({body} {logits} (!= n l)) ((broadcast-demand l n))"
        f' :ruleset typing :name "type-{op}-demand")',
        typing_rule(f"{op}-full", f"{body} {logits} (= n l)", result),
        typing_rule(op, f"{body} {logits} (= l (broadcast l n))", result),
    ]


# These rules are written by hand, as are those of Concat, Slice and Repeat above. Rules derived
# from an index function are one for each rank and axis: 45 rules for Slice in place of one, and 40
# to 50 ms at start. None are derived for list attributes, operands that broadcast, or more than two
# operands. A rule written by hand matches vectors of any length.
_GROUPS: dict[str, Callable[[], list[str]]] = {
    "Expand": _expand_rules,
    "Attention": partial(_attention_types, "Attention", ""),
    "MaskedAttention": partial(_attention_types, "MaskedAttention", " m"),
    "MatMul": _matmul_rules,
    "Conv": convolution_rules,
    "Transpose": _transpose_rules,
    "Pad": _pad_rules,
    "Scalar": partial(_literal_rules, "Scalar", "(= r (Scalar t v))", "(vec-empty)", "(const r)"),
    "Fill": partial(_literal_rules, "Fill", "(= r (Fill t s v))", "s", "(const r)"),
    "Reshape": _reshape_rules,
}

_BY_TRAIT: dict[Trait, Callable[[Op], list[str]]] = {
    "pooling": pool_rules, "reducing": _reduce_rules, "trailing": _trailing_rules,
}  # fmt: skip


@lru_cache
def _rules_of(name: str) -> Sequence[str]:
    """Return the typing rules of an operator; empty if it has none."""
    if name in _SINGLE:
        return [_SINGLE[name]]
    if name in _GROUPS:
        return _GROUPS[name]()
    if name in _BROADCASTING:
        return _binary_rules(name)
    op = get_op(name)
    for trait, rules in _BY_TRAIT.items():
        if trait in op.traits:
            return rules(op)
    if op.kind == "reduction" and "along" in op.traits and "axes" in op.attrs:
        return _along_rules(op)
    return derived_rules(name)


def is_typed(op: str) -> bool:
    """Return whether an operator may be used on the right side of a rule."""
    return bool(_rules_of(op))


@lru_cache
def on_integers(op: str) -> bool:
    """Return whether an elementwise function is defined on integers too."""
    try:
        get_op(op).type_fn([TensorType("int64", ())], {})
    except IllTyped:
        return False
    return True


def _map_rules() -> list[str]:
    """Return the rules of elementwise functions, on all types for those in ``on-integers``."""
    body = "(= r (Map f x)) (= a (shape x)) (= t (dtype x))"
    return [
        typing_rule("Map", f"{body} {_FLOAT}", "a"),
        typing_rule("Map-of-integers", f"(on-integers f) {body} {_NO_STRING}", "a"),
    ]


def _commit(roots: int) -> str:
    """Return the rule that performs all unions of one match together.

    A match asserts that all equations of its rule hold.
    """
    body, head, pairs = "", "", ""
    for i in range(roots):
        a, b, s, t = (f"{name}{i}" for name in "abst")
        pairs += f" {a} {b}"
        body += f" (= {s} (shape {a})) (= {s} (shape {b})) (= {t} (dtype {a})) (= {t} (dtype {b}))"
        head += f"(union {a} {b})"
    name = "commit" if roots == 1 else f"commit-{roots}"
    return f'(rule (({want_table(roots)}{pairs} n){body}) ({head}) :ruleset commit :name "{name}")'


def _const_rules(schema: Schema) -> list[str]:
    rules = ['(rule ((= r (Map f x)) (const x)) ((const r)) :ruleset typing :name "const-Map")']
    for op in schema.typed:
        arity = schema.arity(op)
        if not arity:
            continue
        columns = [f"x{i}" for i in range(arity)] + [
            f"c{i}" for i in range(len(schema.attr_kinds(op)))
        ]
        operands = " ".join(f"(const x{i})" for i in range(arity))
        rules.append(
            f"(rule ((= r ({op} {' '.join(columns)})) {operands}) ((const r))"
            f' :ruleset typing :name "const-{op}")'
        )
    return rules


def typing_rules(schema: Schema) -> list[str]:
    """Return all commands of the rulesets ``typing`` and ``commit``."""
    rules = _map_rules()
    for op in schema.typed:
        rules += _rules_of(op)
    for demand, answers in (("broadcast", _broadcast_rules), ("product", _product_rules)):
        if any(f"({demand}-demand " in rule for rule in rules):
            rules = [*answers(), *rules]
    rules += _const_rules(schema)
    rules += map(_commit, schema.roots)
    return rules
