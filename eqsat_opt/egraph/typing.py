"""Typing rules of new e-nodes, in the engine's language.

The types of the model's own values are loaded as facts; these rules only shape what rewrites add. A
term that does not type gets no shape, so it is never united with anything: the right side of an
equation must type, and its type must equal that of the left. All arithmetic stands in rule bodies,
where an overflow or a bad index means "no match" instead of a failure.
"""

from __future__ import annotations

from collections.abc import Callable

from eqsat_opt.egraph.schema import Schema

__all__ = ["SETTLED", "TYPED_OPS", "typing_rules"]

SETTLED = "(saturate (saturate (run typing)) (run commit))"
"""A schedule: type what is new, then unite what has equal types, until nothing moves."""

_BROADCASTING = ("Add", "Sub", "Mul", "Div", "Pow", "Min", "Max")
_SAME = {
    "LRN": 4, "Scale": 1, "Shift": 1, "Square": 0, "Rsqrt": 0, "Reciprocal": 0, "Center": 1,
    "RmsN": 2, "Softmax": 1, "LogSoftmax": 1, "Swish": 1, "Clip": 2,
}  # fmt: skip
"""Operators whose result has the type of their operand, with their number of attributes."""
_OF_FLOATS = frozenset(
    {"Scale", "Shift", "Square", "Rsqrt", "Reciprocal", "Center", "RmsN", "Swish"}
)
"""Those among them that the registry has for floating point numbers only."""
_LITERAL = 1 << 38
"""Sizes below this are literal; encoded symbolic sizes lie far above or are negative."""


def _rule(
    name: str, body: str, shape: str, dtype: str = "t", result: str = "r", extra: str = ""
) -> str:
    head = f"(set (shape {result}) {shape}) (set (dtype {result}) {dtype}) {extra}"
    return f'(rule ({body}) ({head}) :ruleset typing :name "type-{name}")'


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
    ]


def _product_rules() -> list[str]:
    return [
        "(rule ((product-demand a) (= b (vec-pop a))) ((product-demand b))"
        ' :ruleset typing :name "product-demand")',
        "(rule ((product-demand a) (= 0 (vec-length a))) ((set (product a) 1))"
        ' :ruleset typing :name "product-empty")',
        "(rule ((product-demand a) (= n (vec-get a (- (vec-length a) 1)))"
        " (= p (* n (product (vec-pop a)))))"
        ' ((set (product a) p)) :ruleset typing :name "product-step")',
    ]


def _binary_rules(op: str) -> list[str]:
    operands = f"(= r ({op} x y)) (= a (shape x)) (= b (shape y)) (= t (dtype x)) (= t (dtype y))"
    return [
        _rule(f"{op}-same", f"{operands} (= a b)", "a"),
        f"(rule ({operands} (!= a b)) ((broadcast-demand a b))"
        f' :ruleset typing :name "type-{op}-demand")',
        _rule(f"{op}-broadcast", f"{operands} (!= a b) (= s (broadcast a b))", "s"),
    ]


def _matmul_rules() -> list[str]:
    operands = (
        "(= r (MatMul x y)) (= a (shape x)) (= b (shape y)) (= t (dtype x)) (= t (dtype y))"
        " (= n (vec-length a)) (> n 1)"
    )
    inner = "(= k (vec-get a (- n 1)))"
    return [
        _rule(
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
        # By way of a table, so that a new answer finds the products that wait for it at once.
        _rule(
            "MatMul-batched",
            "(batched r t c d m p) (= e (broadcast c d)) (= s (vec-push (vec-push e m) p))",
            "s",
        ),
    ]


def _window(size: str, kernel: str, axis: int, rank: int) -> str:
    """Positions of a window along one axis; ``st``, ``pd`` and ``di`` are attribute vectors."""
    padded = f"(+ {size} (+ (vec-get pd {axis}) (vec-get pd {axis + rank})))"
    extent = f"(+ (* (vec-get di {axis}) (- {kernel} 1)) 1)"
    return f"(+ (/ (- {padded} {extent}) (vec-get st {axis})) 1)"


def _fits(size: str, kernel: str, axis: int, rank: int) -> str:
    padded = f"(+ {size} (+ (vec-get pd {axis}) (vec-get pd {axis + rank})))"
    fits = f"(<= (+ (* (vec-get di {axis}) (- {kernel} 1)) 1) {padded})"
    # The quotient of a symbolic size is an atom that the engine cannot compute: only stride 1 needs
    # none.
    return f"{fits} (= 0 (* (- (vec-get st {axis}) 1) (/ {size} {_LITERAL})))"


def _conv_rules() -> list[str]:
    rules = []
    for rank in (1, 2, 3):
        # Columns in attribute order: dilations, group, pads, strides.
        body = (
            "(= r (Conv x w di g pd st)) (= a (shape x)) (= b (shape w))"
            f" (= t (dtype x)) (= t (dtype w)) (= {rank} (vec-length st))"
            f" (= {rank + 2} (vec-length a)) (= {rank + 2} (vec-length b))"
            " (= n (vec-get a 0)) (= c (vec-get a 1)) (= c (* g (vec-get b 1)))"
            " (= o (vec-get b 0)) (= 0 (% o g))"
        )
        sizes = []
        for i in range(rank):
            body += f" {_fits(f'(vec-get a {i + 2})', f'(vec-get b {i + 2})', i, rank)}"
            body += f" (= h{i} {_window(f'(vec-get a {i + 2})', f'(vec-get b {i + 2})', i, rank)})"
            sizes.append(f"h{i}")
        rules.append(_rule(f"Conv-{rank}d", body, f"(vec-of n o {' '.join(sizes)})"))
    return rules


def _pool_rules(op: str) -> list[str]:
    # Ceil mode drops windows by a rule of its own; such pools are typed only where the model itself
    # has them.
    columns = {"MaxPool": "0 di k pd st", "AveragePool": "0 cip di k pd st"}[op]
    body = (
        f"(= r ({op} x {columns})) (= a (shape x)) (= t (dtype x))"
        " (= 4 (vec-length a)) (= 2 (vec-length k))"
        " (= n (vec-get a 0)) (= c (vec-get a 1))"
    )
    for i in range(2):
        body += f" {_fits(f'(vec-get a {i + 2})', f'(vec-get k {i})', i, 2)}"
        body += f" (= h{i} {_window(f'(vec-get a {i + 2})', f'(vec-get k {i})', i, 2)})"
    return [_rule(op, body, "(vec-of n c h0 h1)")]


def _transpose_rules() -> list[str]:
    rules = []
    for rank in range(1, 7):
        body = (
            "(= r (Transpose x p)) (= a (shape x)) (= t (dtype x))"
            f" (= {rank} (vec-length a)) (= {rank} (vec-length p))"
        )
        picks = " ".join(f"(vec-get a (vec-get p {i}))" for i in range(rank))
        rules.append(_rule(f"Transpose-{rank}d", f"{body} (= s (vec-of {picks}))", "s"))
    return rules


def _pad_rules() -> list[str]:
    rules = []
    for rank in range(1, 6):
        body = (
            "(= r (Pad x p v)) (= a (shape x)) (= t (dtype x))"
            f" (= {rank} (vec-length a)) (= {2 * rank} (vec-length p))"
        )
        sizes = " ".join(
            f"(+ (vec-get a {i}) (+ (vec-get p {i}) (vec-get p {i + rank})))" for i in range(rank)
        )
        rules.append(_rule(f"Pad-{rank}d", f"{body} (= s (vec-of {sizes}))", "s"))
    return rules


_SINGLE = {
    "Concat": _rule(
        "Concat",
        "(= r (Concat x y i)) (= a (shape x)) (= b (shape y)) (= t (dtype x)) (= t (dtype y))"
        " (= (vec-set a i 0) (vec-set b i 0)) (= s (vec-set a i (+ (vec-get a i) (vec-get b i))))",
        "s",
    ),
    "Slice": _rule(
        "Slice",
        "(= r (Slice x i h l)) (= a (shape x)) (= t (dtype x))"
        " (>= l 0) (< l h) (= d (vec-get a i)) (<= h d)"
        f" (< d {_LITERAL}) (= s (vec-set a i (- h l)))",
        "s",
    ),
    "Repeat": _rule(
        "Repeat",
        "(= r (Repeat x i n)) (= a (shape x)) (= t (dtype x)) (> n 0)"
        f" (= d (vec-get a i)) (<= 0 d) (< d {_LITERAL}) (= s (vec-set a i (* n d)))",
        "s",
    ),
    "Scalar": _rule("Scalar", "(= r (Scalar t v))", "(vec-empty)", extra="(const r)"),
    "Fill": _rule("Fill", "(= r (Fill t s v))", "s", extra="(const r)"),
    "IdentityKernel": _rule(
        "IdentityKernel",
        "(= r (IdentityKernel c t h w)) (= s (vec-of c c h w))",
        "s",
        extra="(const r)",
    ),
}


def _reshape_rules() -> list[str]:
    operands = "(= r (Reshape x s)) (= a (shape x)) (= t (dtype x))"
    return [
        f"(rule ({operands}) ((product-demand a) (product-demand s))"
        ' :ruleset typing :name "type-Reshape-demand")',
        _rule("Reshape", f"{operands} (= n (product a)) (= n (product s))", "s"),
    ]


def _same_rule(op: str) -> str:
    columns = " ".join(["x", *(f"c{i}" for i in range(_SAME[op]))])
    floats = " (is-float t)" if op in _OF_FLOATS else ""
    return _rule(op, f"(= r ({op} {columns})) (= a (shape x)) (= t (dtype x)){floats}", "a")


def _reduce_rules(op: str) -> list[str]:
    """Reductions that keep their axes, up to three of them."""
    rules = []
    for count in (1, 2, 3):
        shape = "a"
        for i in range(count):
            shape = f"(vec-set {shape} (vec-get x {i}) 1)"
        body = (
            f"(= r ({op} y x 1)) (= a (shape y)) (= t (dtype y)) (= {count} (vec-length x))"
            f" (= s {shape})"
        )
        rules.append(_rule(f"{op}-{count}", body, "s"))
    return rules


def _reductions(op: str) -> Callable[[], list[str]]:
    return lambda: _reduce_rules(op)


def _normalisation_rules(op: str, parameters: str) -> list[str]:
    """Parameters are vectors along the last axis, which is the one that is normalised."""
    body = (
        f"(= r ({op} x {parameters} i e)) (= a (shape x)) (= t (dtype x))"
        " (= p (vec-of (vec-get a i))) (= (+ i 1) (vec-length a))"
    )
    for parameter in parameters.split():
        body += f" (= p (shape {parameter})) (= t (dtype {parameter}))"
    return [_rule(op, body, "a")]


def _layer_rules() -> list[str]:
    return _normalisation_rules("LayerNormalization", "g b")


def _rms_rules() -> list[str]:
    return _normalisation_rules("RMSNormalization", "g")


def _expand_rules() -> list[str]:
    operands = "(= r (Expand x s)) (= a (shape x)) (= t (dtype x))"
    return [
        f'(rule ({operands}) ((broadcast-demand a s)) :ruleset typing :name "type-Expand-demand")',
        _rule("Expand", f"{operands} (= s (broadcast a s))", "s"),
    ]


def _attention_types(op: str, mask: str) -> list[str]:
    body = (
        f"(= r ({op} q k v{mask} c)) (= a (shape q)) (= b (shape k)) (= d (shape v))"
        " (= t (dtype q)) (= t (dtype k)) (= t (dtype v)) (= 4 (vec-length a))"
        " (= 4 (vec-length b)) (= 4 (vec-length d)) (= (vec-get a 0) (vec-get b 0))"
        " (= (vec-get a 0) (vec-get d 0)) (= (vec-get a 3) (vec-get b 3))"
        " (= (vec-get b 1) (vec-get d 1)) (= (vec-get b 2) (vec-get d 2))"
        f" (= (vec-get a 1) (* (vec-get b 1) (/ (vec-get a 1) (vec-get b 1))))"
    )
    result = "(vec-set a 3 (vec-get d 3))"
    if not mask:
        return [_rule(op, body, result)]
    logits = "(= l (vec-set a 3 (vec-get b 2))) (= n (shape m)) (= t (dtype m))"
    return [
        f"(rule ({body} {logits} (!= n l)) ((broadcast-demand l n))"
        f' :ruleset typing :name "type-{op}-demand")',
        _rule(f"{op}-full", f"{body} {logits} (= n l)", result),
        _rule(op, f"{body} {logits} (= l (broadcast l n))", result),
    ]


def _attention_rules() -> list[str]:
    return _attention_types("Attention", "")


def _masked_rules() -> list[str]:
    return _attention_types("MaskedAttention", " m")


_GROUPS = {
    **{op: _reductions(op) for op in ("ReduceMean", "ReduceSum", "ReduceMax")},
    "Expand": _expand_rules,
    "LayerNormalization": _layer_rules,
    "RMSNormalization": _rms_rules,
    "Attention": _attention_rules,
    "MaskedAttention": _masked_rules,
    "MatMul": _matmul_rules,
    "Conv": _conv_rules,
    "Transpose": _transpose_rules,
    "Pad": _pad_rules,
    "Reshape": _reshape_rules,
}

TYPED_OPS = frozenset({*_BROADCASTING, *_SAME, *_SINGLE, *_GROUPS, "MaxPool", "AveragePool"})
"""Operators that may stand on the right side of a rule."""


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
    """All commands of ruleset ``typing`` and the one of ``commit``."""
    rules = [_rule("Map", "(= r (Map f x)) (= a (shape x)) (= t (dtype x))", "a")]
    for op in schema.typed:
        if op in _BROADCASTING:
            rules += _binary_rules(op)
        elif op in _SINGLE:
            rules.append(_SINGLE[op])
        elif op in _GROUPS:
            rules += _GROUPS[op]()
        elif op in _SAME:
            rules.append(_same_rule(op))
        elif op in ("MaxPool", "AveragePool"):
            rules += _pool_rules(op)
    for demand, answers in (("broadcast", _broadcast_rules), ("product", _product_rules)):
        if any(f"({demand}-demand " in rule for rule in rules):
            rules = [*answers(), *rules]
    rules += _const_rules(schema)
    rules.append(
        "(rule ((want a b n) (= s (shape a)) (= s (shape b)) (= t (dtype a)) (= t (dtype b)))"
        " ((union a b))"
        ' :ruleset commit :name "commit")'
    )
    return rules
