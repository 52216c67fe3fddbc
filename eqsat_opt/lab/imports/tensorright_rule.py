"""The meaning of a rule of TensorRight: a definition of Haskell that is run on terms."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eqsat_opt.lab.imports.foreign import Unsayable, attributes_in, attributes_of
from eqsat_opt.lab.imports.haskell import Definition, HaskellCall, HaskellRecord, Lambda, Node
from eqsat_opt.lab.imports.haskell_sizes import conditions, number
from eqsat_opt.lab.imports.named_axes import (
    Axis,
    Key,
    NamedTensor,
    SizeMap,
    cut,
    joined,
    ordered,
    place_of,
    spread,
    summed,
)
from eqsat_opt.rules.rule import Numerics, Phase, Rule
from eqsat_opt.rules.term import (
    Apply,
    AttrPattern,
    Condition,
    Expr,
    Term,
    Var,
    expr,
    is_float,
    ops,
)

__all__ = ["Reader"]

Env = dict[str, object]
"""The values of names: axes, sizes, tensors, texts and numbers."""

_BINARY = {
    "Add": "Add", "Sub": "Sub", "Mul": "Mul", "Div": "Div", "Max": "Max", "Min": "Min",
    "And": "And", "Or": "Or", "Gt": "Greater", "Lt": "Less", "Ge": "GreaterOrEqual",
    "Le": "LessOrEqual", "Eqv": "Equal",
}  # fmt: skip
_UNARY = {"Neg": "Neg", "Abs": "Abs", "Exp": "Exp", "Not": "Not"}
_IGNORED = frozenset({
    "siRelation", "checkSIMap", "monitorMapOnFailure", "monitorExprOnFailure",
})  # fmt: skip
"""Statements about indices of sums, which sums have no need of here, and on failures."""
_NUMBERS = {"posInf": float("inf"), "negInf": float("-inf")}
_TRUTHS = {"True": 1.0, "true": 1.0, "False": 0.0, "false": 0.0}


@dataclass
class Reader:
    """The meaning of one definition."""

    name: str
    known: Mapping[str, Definition]
    kinds: dict[str, str] = field(default_factory=dict)
    when: list[Condition] = field(default_factory=list)
    axes: list[Axis] = field(default_factory=list)
    fixed: dict[str, int] = field(default_factory=dict)
    text: str = ""
    sides: tuple[Term, Term] | None = None
    truths: set[str] = field(default_factory=set)
    nonnegative: list[SizeMap] = field(default_factory=list)

    # Statements ----------------------------------------------------------------------------------

    def run(self, definition: Definition, env: Env) -> None:
        self._fix(definition.text)
        for statement in definition.statements():
            value = statement.value
            if isinstance(value, HaskellCall) and value.head in _IGNORED:
                continue
            result = self.value(value, env)
            if len(statement.names) == 1 and not isinstance(result, list):
                env[statement.names[0]] = result
            elif statement.names:
                if not isinstance(result, list) or len(result) != len(statement.names):
                    raise Unsayable("the Haskell of a pattern")
                env.update(zip(statement.names, result, strict=True))

    def _fix(self, text: str) -> None:
        """Note the maps that a precondition fixes to a literal, such as strides of 1."""
        for name, variable, other, literal in re.findall(
            r"precondition \[(\w+)\] \$\s*\\\[(\w+)\] -> (\w+) \.== (\d+)", text
        ):
            if variable == other:
                self.fixed[name] = int(literal)

    def stated(self) -> Rule:
        if self.sides is None:
            raise Unsayable("a rewrite")
        lhs, rhs = self.sides
        if isinstance(lhs, Var):
            raise Unsayable("a name of an axis that rules can change")
        used = sorted(lhs.variables() | rhs.variables())
        named = {**dict.fromkeys(used, "Tensor"), **self.kinds}
        kinds = {n: k for n, k in named.items() if k != "unbound" and (k != "Tensor" or n in used)}
        free = {n for n, k in kinds.items() if k != "Tensor"} - attributes_of((lhs,))
        if free & (attributes_of((rhs,)) | attributes_in(self.when)):
            raise Unsayable(f"a left side that binds {min(free)}")
        kinds = {n: k for n, k in kinds.items() if n not in free}
        own = sorted(n for n in used if n in self.floats)
        when = {str(one): one for one in (*self.when, *(is_float(Var(n)) for n in own[:1]))}
        return Rule(
            name=self.name, lhs=(lhs,), rhs=(rhs,), when=tuple(when.values()),
            kinds=tuple(kinds.items()), numerics=Numerics.REFACTOR, phase=Phase.EXPLORE,
            bidirectional=False, doc=self.text,
        )  # fmt: skip

    @property
    def floats(self) -> set[str]:
        return {name for name, kind in self.kinds.items() if kind == "Tensor"} - self.truths

    # Expressions ---------------------------------------------------------------------------------

    def value(self, node: Node, env: Env) -> object:
        if isinstance(node, Lambda | HaskellRecord):
            return node
        head, args = node.head, node.args
        if head == "[]":
            return [self.value(one, env) for one in args]
        if not args and head in env:
            return env[head]
        if head.startswith('"'):
            return head.strip('"')
        if head.isdigit():
            return int(head)
        if head in self.known and head not in ("main",):
            definition = self.known[head]
            given = [self.value(one, env) for one in args]
            self.run(definition, dict(zip(definition.parameters, given, strict=False)))
            return None
        method = getattr(self, f"do_{head.rstrip(chr(39)).lower()}", None)
        if method is not None:
            return method([one for one in args if not _is_type(one)], env, _type_of(args))
        if head == "-->":
            left, right = (self.value(one, env) for one in args)
            return left, right
        if head == "@@":
            size, label = (self.value(one, env) for one in args)
            assert isinstance(size, SizeMap)
            return SizeMap(size.axis, size.value, size.name, str(label))
        if head == "<>":
            return "".join(str(self.value(one, env)) for one in args)
        if not args:
            return head
        raise Unsayable(f"{head} of {len(args)} arguments")

    def tensor(self, node: Node, env: Env) -> NamedTensor:
        found = self.value(node, env)
        if not isinstance(found, NamedTensor):
            raise Unsayable("a tensor in this form")
        return found

    # Axes and sizes ------------------------------------------------------------------------------

    def do_newrclass(self, args: Sequence[Node], env: Env, _: str) -> Axis:
        self.axes.append(Axis(len(self.axes)))
        return self.axes[-1]

    def do_newrclasses(self, args: Sequence[Node], env: Env, _: str) -> list[Axis]:
        names = self.value(args[0], env)
        assert isinstance(names, list)
        return [self.do_newrclass((), env, "") for _name in names]

    def new_map(self, name: object, axis: object) -> SizeMap:
        assert isinstance(axis, Axis)
        fixed = self.fixed.get(str(name))
        plain = "n" + re.sub(r"\W", "", str(name)).lower()
        return SizeMap(axis, None if fixed is None else expr(fixed), self.free(plain))

    def free(self, name: str) -> str:
        """Return a name that no variable has."""
        while name in self.kinds:
            name += "x"
        self.kinds[name] = "unbound"
        return name

    def do_newmap(self, args: Sequence[Node], env: Env, _: str) -> SizeMap:
        return self.new_map(self.value(args[0], env), self.value(args[1], env))

    def do_newmaps(self, args: Sequence[Node], env: Env, _: str) -> list[SizeMap]:
        names = self.value(args[0], env)
        assert isinstance(names, list)
        axis = self.value(args[1], env)
        return [self.new_map(name, axis) for name in names]

    def do_newnonnegmap(self, args: Sequence[Node], env: Env, _: str) -> SizeMap:
        made = self.do_newmap(args, env, "")
        self.nonnegative.append(made)
        return made

    def do_newnonnegmaps(self, args: Sequence[Node], env: Env, _: str) -> list[SizeMap]:
        made = self.do_newmaps(args, env, "")
        self.nonnegative += made
        return made

    def do_newconstmap(self, args: Sequence[Node], env: Env, _: str) -> SizeMap:
        axis = self.value(args[2], env)
        assert isinstance(axis, Axis)
        return SizeMap(axis, expr(self.value(args[1], env)))

    def do_combinemap(self, args: Sequence[Node], env: Env, _: str) -> SizeMap:
        function, maps = args[1], self.value(args[2], env)
        assert isinstance(maps, list)
        numbers = [self.size(one) for one in maps]
        if isinstance(function, HaskellCall) and function.head == "sum":
            return SizeMap(maps[0].axis, sum(numbers[1:], numbers[0]))
        if not isinstance(function, Lambda):
            raise Unsayable("a function of sizes in this form")
        inner = dict(zip(function.names, numbers, strict=True))
        return SizeMap(maps[0].axis, number(function.body, inner))

    def do_summap(self, args: Sequence[Node], env: Env, _: str) -> SizeMap:
        return self.do_combinemap((args[0], HaskellCall("sum"), args[1]), env, "")

    def size(self, one: object) -> Expr:
        """Return the number of a map; one without any becomes a variable."""
        if isinstance(one, list):
            raise Unsayable("a list of sizes")
        if not isinstance(one, SizeMap):
            raise Unsayable("a size in this form")
        if one.value is None:
            self.kinds[one.name] = "Int"
            one.value = Expr("attr", (one.name,))
            if one in self.nonnegative:
                self.when.append(one.value >= 0)
        return one.value

    def do_precondition(self, args: Sequence[Node], env: Env, _: str) -> None:
        maps, function = self.value(args[0], env), args[1]
        if not isinstance(function, Lambda) or not isinstance(maps, list):
            raise Unsayable("a condition in this form")
        names = dict(zip(function.names, map(self.size, maps), strict=True))
        self.when += conditions(function.body, names)

    # Tensors -------------------------------------------------------------------------------------

    def shape(self, node: Node, env: Env) -> dict[Key, SizeMap]:
        pairs = self.value(node, env)
        if not isinstance(pairs, list):
            raise Unsayable("axes in this form")
        found = {}
        for axis, size in pairs:
            if not isinstance(size, SizeMap):
                raise Unsayable("axes in this form")
            found[self.key(axis, size.label)] = size
        return dict(sorted(found.items()))

    def key(self, axis: object, label: str = "") -> Key:
        if isinstance(axis, Axis):
            return axis.number, label
        raise Unsayable("an axis by its label alone")

    def do_byrclass(self, args: Sequence[Node], env: Env, _: str) -> object:
        return self.value(args[0], env)

    def do_bylabel(self, args: Sequence[Node], env: Env, _: str) -> object:
        return "label", str(self.value(args[0], env))

    def do_newtensor(self, args: Sequence[Node], env: Env, type_: str) -> NamedTensor:
        name = "t" + re.sub(r"\W", "", str(self.value(args[0], env))).lower()
        shape = self.shape(args[1], env)
        name = self.free(name)
        self.kinds[name] = "Tensor"
        if type_ == "@SymBool":
            self.truths.add(name)
        made = Var(name)
        self.when.append(made.rank == len(shape))
        for place, size in enumerate(shape.values()):
            if size.value is None:
                size.value = made.dim(place)
                if size.name in self.kinds:
                    self.kinds[size.name] = "unbound"
            else:
                self.when.append(made.dim(place) == size.value)
        sizes = tuple(made.dim(place) for place in range(len(shape)))
        return NamedTensor(made, tuple(shape), sizes, "bool" if type_ == "@SymBool" else "")

    def dtype(self, type_: str) -> object:
        if type_ == "@SymBool":
            return "bool"
        known = sorted(self.floats)
        return Var(known[0]).dtype if known else "float32"

    def do_constant(self, args: Sequence[Node], env: Env, type_: str) -> NamedTensor:
        shape = self.shape(args[1], env)
        sizes = tuple(self.size(one) for one in shape.values())
        value = self.literal(args[0], env)
        made = ops.Fill(shape=sizes, value=value, dtype=self.dtype(type_))
        return NamedTensor(made, tuple(shape), sizes)

    def literal(self, node: Node, env: Env) -> Expr:
        if not isinstance(node, HaskellCall):
            raise Unsayable("a number in this form")
        head, args = node.head, node.args
        if head in ("con", "nonInf") and args:
            return self.literal(args[0], env)
        if head == "negate":
            return 0 - self.literal(args[0], env)
        if head == "tensorDiv":
            return self.literal(args[0], env) / self.literal(args[1], env)
        if head in _TRUTHS or head in _NUMBERS:
            return expr({**_TRUTHS, **_NUMBERS}[head])
        if head.isdigit():
            return expr(float(head))
        value = env.get(head, head.strip('"'))
        if isinstance(value, Expr):
            return value
        if isinstance(value, str) and value in _TRUTHS:
            return expr(_TRUTHS[value])
        if not isinstance(value, str):
            raise Unsayable("a number in this form")
        name = "k" + re.sub(r"\W", "", value).lower()
        self.kinds[name] = "Float"
        return Expr("attr", (name,))

    def do_tensordiv(self, args: Sequence[Node], env: Env, _: str) -> Expr:
        return self.literal(args[0], env) / self.literal(args[1], env)

    def do_rewrite(self, args: Sequence[Node], env: Env, _: str) -> None:
        self.text = " ".join(str(self.value(args[0], env)).split())
        left, right = (self.tensor(one, env) for one in args[1:])
        self.sides = left.term, ordered(right, left.axes).term

    # Operators -----------------------------------------------------------------------------------

    def do_numbinop(self, args: Sequence[Node], env: Env, _: str) -> NamedTensor:
        op = self.value(args[0], env)
        x, y = (self.tensor(one, env) for one in args[1:])
        y = ordered(y, x.axes)
        if op == "Rem":
            raise Unsayable("a remainder of whole numbers of any size")
        if op == "Ne":
            return NamedTensor(ops.Not(ops.Equal(x.term, y.term)), x.axes, x.sizes, "bool")
        if op not in _BINARY:
            raise Unsayable(f"the operator {op}")
        return NamedTensor(Apply(_BINARY[str(op)], (x.term, y.term), {}), x.axes, x.sizes)

    do_boolbinop = do_compareop = do_numbinop

    def do_numunaryop(self, args: Sequence[Node], env: Env, _: str) -> NamedTensor:
        op, x = str(self.value(args[0], env)), self.tensor(args[1], env)
        if op not in _UNARY:
            raise Unsayable(f"the operator {op}")
        return NamedTensor(Apply(_UNARY[op], (x.term,), {}), x.axes, x.sizes)

    do_boolunaryop = do_numunaryop

    def do_select(self, args: Sequence[Node], env: Env, _: str) -> NamedTensor:
        p, x, y = (self.tensor(one, env) for one in args)
        return NamedTensor(ops.Where(p.term, x.term, y.term), x.axes, x.sizes)

    def do_clamp(self, args: Sequence[Node], env: Env, _: str) -> NamedTensor:
        low, x, high = (self.tensor(one, env) for one in args)
        return NamedTensor(ops.Clamp(x.term, low.term, high.term), x.axes, x.sizes)

    def do_broadcast(self, args: Sequence[Node], env: Env, _: str) -> NamedTensor:
        return spread(self.tensor(args[0], env), {
            key: self.size(one) for key, one in self.shape(args[1], env).items()
        })  # fmt: skip

    def do_reduce(self, args: Sequence[Node], env: Env, _: str) -> NamedTensor:
        x = self.tensor(args[0], env)
        pairs = self.value(args[1], env)
        if not isinstance(pairs, list):
            raise Unsayable("axes in this form")
        return summed(x, [place_of(x, axis) for axis, _size in pairs])

    def do_dot(self, args: Sequence[Node], env: Env, _: str) -> NamedTensor:
        x, y = (self.tensor(one, env) for one in args[:2])
        pairs = self.value(args[2], env)
        if not isinstance(pairs, list):
            raise Unsayable("axes in this form")
        only_y = {k: s for k, s in zip(y.axes, y.sizes, strict=True) if k not in x.axes}
        only_x = {k: s for k, s in zip(x.axes, x.sizes, strict=True) if k not in y.axes}
        left = spread(x, only_y) if only_y else x
        right = spread(y, only_x) if only_x else y
        right = ordered(right, left.axes)
        product = NamedTensor(left.term * right.term, left.axes, left.sizes)
        return summed(product, [place_of(product, axis) for axis, _size in pairs])

    def do_concattensor(self, args: Sequence[Node], env: Env, _: str) -> NamedTensor:
        parts = [self.tensor(one, env) for one in args[:2]]
        return joined(parts, self.value(args[2], env))

    def do_concattensorlist(self, args: Sequence[Node], env: Env, _: str) -> NamedTensor:
        parts = self.value(args[0], env)
        assert isinstance(parts, list)
        axis = self.value(args[1], env)
        place = place_of(parts[0], axis)
        sizes = list(parts[0].sizes)
        for one in parts[1:]:
            sizes[place] = sizes[place] + one.sizes[place]
        made = ops.Concat(*(one.term for one in parts), axis=place)
        return NamedTensor(made, parts[0].axes, tuple(sizes))

    def positions(self, record: Node, name: str, x: NamedTensor, env: Env
                  ) -> dict[int, Expr]:  # fmt: skip
        if not isinstance(record, HaskellRecord):
            raise Unsayable("positions in this form")
        pairs = self.value(record.fields[name], env)
        if not isinstance(pairs, list):
            raise Unsayable("positions in this form")
        return {place_of(x, axis): self.size(one) for axis, one in pairs}

    def do_slice(self, args: Sequence[Node], env: Env, _: str) -> NamedTensor:
        x = self.tensor(args[0], env)
        self.need_steps_of_one(args[1], env)
        lows, highs = (self.positions(args[1], name, x, env) for name in ("start", "end"))
        for place in sorted({*lows, *highs}):
            x = cut(x, place, lows.get(place, expr(0)), highs.get(place, x.sizes[place]))
        return x

    def need_steps_of_one(self, record: Node, env: Env) -> None:
        """Read steps that a rule leaves open as 1.

        Raises:
            Unsayable: a step is another one.
        """
        pairs = (
            self.value(record.fields["strides"], env) if isinstance(record, HaskellRecord) else None
        )
        if not isinstance(pairs, list):
            raise Unsayable("steps in this form")
        for _axis, one in pairs:
            if one.value is None:
                one.value = expr(1)
            if one.value.kind != "literal" or one.value.args[0] != 1:
                raise Unsayable("a slice with a step")

    def do_dynamicslice(self, args: Sequence[Node], env: Env, _: str) -> NamedTensor:
        x = self.tensor(args[0], env)
        lows = self.positions(args[1], "start", x, env)
        counts = self.positions(args[1], "sizes", x, env)
        for place in sorted(lows):
            x = cut(x, place, lows[place], lows[place] + counts[place])
        return x

    def do_pad(self, args: Sequence[Node], env: Env, _: str) -> NamedTensor:
        x, value = self.tensor(args[0], env), self.literal(args[1], env)
        lows, highs, inner = (self.positions(args[2], name, x, env)
                              for name in ("low", "high", "interior"))  # fmt: skip
        if any(one.kind != "literal" or one.args[0] for one in inner.values()):
            raise Unsayable("a pad between elements")
        pads = [[expr(0)] * len(x.axes), [expr(0)] * len(x.axes)]
        sizes = list(x.sizes)
        for place in {*lows, *highs}:
            for end, given in zip(pads, (lows, highs), strict=True):
                end[place] = given.get(place, expr(0))
            sizes[place] = sizes[place] + pads[0][place] + pads[1][place]
        attrs: dict[str, AttrPattern] = {"pads": (*pads[0], *pads[1]), "value": value}
        return NamedTensor(Apply("Pad", (x.term,), attrs), x.axes, tuple(sizes))

    def do_iota(self, args: Sequence[Node], env: Env, _: str) -> NamedTensor:
        shape = self.shape(args[0], env)
        sizes = tuple(self.size(one) for one in shape.values())
        ones = ops.Fill(shape=sizes, value=1.0, dtype="float32")
        made = NamedTensor(ones, tuple(shape), sizes)
        place = place_of(made, self.value(args[1], env))
        term = ops.CumSum(ones, axis=place, exclusive=1, reverse=0)
        return NamedTensor(term, made.axes, sizes)

    def do_relabel(self, args: Sequence[Node], env: Env, _: str) -> NamedTensor:
        x = self.tensor(args[0], env)
        pairs = self.value(args[1], env)
        if not isinstance(pairs, list):
            raise Unsayable("labels in this form")
        labels = {}
        for old, new in pairs:
            if not (isinstance(new, tuple) and new[0] == "label"):
                raise Unsayable("labels in this form")
            labels[place_of(x, old)] = str(new[1])
        # Names change and places do not, which is the transposition in the order that is there.
        axes = tuple((n, labels.get(i, label)) for i, (n, label) in enumerate(x.axes))
        return NamedTensor(ops.Transpose(x.term, perm=tuple(range(len(axes)))), axes, x.sizes)

    def do_reshapedegenerate(self, args: Sequence[Node], env: Env, _: str) -> NamedTensor:
        x = self.tensor(args[0], env)
        added, dropped = self.value(args[1], env), self.value(args[2], env)
        if added or not isinstance(dropped, list):
            raise Unsayable("a reshape that adds axes")
        places = [place_of(x, axis) for axis in dropped]
        kept = [i for i in range(len(x.axes)) if i not in places]
        shape = tuple(x.sizes[i] for i in kept)
        return NamedTensor(ops.Reshape(x.term, shape=shape), tuple(x.axes[i] for i in kept), shape)


def _is_type(node: Node) -> bool:
    return isinstance(node, HaskellCall) and node.head.startswith("@")


def _type_of(args: Sequence[Node]) -> str:
    return next((one.head for one in args if isinstance(one, HaskellCall) and _is_type(one)), "")
