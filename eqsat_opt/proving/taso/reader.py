"""TASO's substitution file: rules as two small graphs and a pairing of their outputs.

The encoding was read from the file of the TASO repository (SOSP 2019, ``graph_subst.pb``): a
collection holds rules (field 1), a rule holds source operators (1), target operators (2) and paired
outputs (3), an operator holds its kind (1), operands (2) and parameters (3). A negative operator
number is a variable, the same on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from eqsat_opt.errors import RuleError
from eqsat_opt.proving.taso.wire import Message, parse

__all__ = [
    "ACTIVATIONS",
    "PADS",
    "Pair",
    "Side",
    "TasoOp",
    "TasoRule",
    "Value",
    "read_taso",
    "variable_names",
]

_KINDS: Mapping[int, tuple[str, int, int]] = {
    3: ("conv", 2, 1), 8: ("relu", 1, 1), 9: ("sigmoid", 1, 1), 10: ("tanh", 1, 1),
    12: ("concat", 2, 1), 13: ("split", 1, 2), 16: ("ewadd", 2, 1), 17: ("ewmul", 2, 1),
    18: ("matmul", 2, 1),
}  # fmt: skip
"""Code of an operator to its name and its numbers of operands and outputs."""

_PARAMETERS: Mapping[int, str] = {
    0: "op_type", 1: "num_inputs", 2: "num_outputs", 3: "group", 4: "kernel_h", 5: "kernel_w",
    6: "stride_h", 7: "stride_w", 8: "pad", 9: "activation", 10: "rank", 11: "axis", 12: "perm",
    13: "outshuffle", 14: "merge_gconv_count",
}  # fmt: skip
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "conv": ("stride_h", "stride_w", "pad", "activation"), "matmul": ("activation",),
    "concat": ("axis", "rank"), "split": ("axis",),
}  # fmt: skip
ACTIVATIONS = ("none", "sigmoid", "relu", "tanh")
"""Activations by the numbers that the file gives them."""
PADS = ("same", "valid")
"""Paddings by the numbers that the file gives them."""
_MOST_OPS = 16
"""Most operators per side; the file's rules have six, and a side is read as a tree."""
_LETTERS = (*"xyzwuvabcdefgh", *(f"x{i}" for i in range(2 * _MOST_OPS)))
"""Names of variables: more than the operators of a side can read."""


@dataclass(frozen=True)
class Value:
    """A tensor: output ``output`` of operator ``op``, or variable ``-op`` where negative."""

    op: int
    output: int


@dataclass(frozen=True)
class TasoOp:
    """An operator with the parameters of the file.

    Attributes:
        kind: ``conv``, ``relu``, ``sigmoid``, ``tanh``, ``concat``, ``split``, ``ewadd``, ``ewmul``
            or ``matmul``.
        operands: variables or outputs of earlier operators.
        parameters: name to integer.
    """

    kind: str
    operands: tuple[Value, ...]
    parameters: Mapping[str, int]

    @property
    def activation(self) -> str:
        """The activation applied to the result: ``none``, ``sigmoid``, ``relu`` or ``tanh``."""
        return ACTIVATIONS[self.parameters.get("activation", 0)]

    @property
    def pad(self) -> str:
        """The padding: ``same`` or ``valid``."""
        return PADS[self.parameters.get("pad", 0)]

    def __str__(self) -> str:
        given = self.parameters
        match self.kind:
            case "conv":
                stride = f"s{given['stride_h']}x{given['stride_w']}"
                return f"conv[{stride},{self.pad},{self.activation}]"
            case "matmul":
                return f"matmul[{self.activation}]"
            case "concat":
                return f"concat[ax{given['axis']}/{given['rank']}d]"
            case "split":
                return f"split[ax{given['axis']}]"
        return self.kind


Side = tuple[TasoOp, ...]
"""Operators in order; each reads variables and earlier ones."""


@dataclass(frozen=True)
class Pair:
    """One output of the rule: a value of the source and the value of the target replacing it."""

    source: Value
    target: Value


@dataclass(frozen=True)
class TasoRule:
    """A substitution, read from source to target.

    Attributes:
        number: position in the file, from 0.
        source, target: operators of both sides.
        outputs: pairs of a replaced value and its replacement.
    """

    number: int
    source: Side
    target: Side
    outputs: tuple[Pair, ...]

    def __str__(self) -> str:
        names = variable_names(self)
        return " | ".join(
            f"{_text(self.source, pair.source, names)} => {_text(self.target, pair.target, names)}"
            for pair in self.outputs
        )


def variable_names(rule: TasoRule) -> dict[int, str]:
    """Name the variables by letters, in the order in which the rule is read."""
    names: dict[int, str] = {}
    for side, values in (
        (rule.source, [pair.source for pair in rule.outputs]),
        (rule.target, [pair.target for pair in rule.outputs]),
    ):
        for value in values:
            for number in _variables(side, value):
                names.setdefault(number, _LETTERS[len(names)])
    return names


def _variables(side: Side, value: Value) -> Iterator[int]:
    if value.op < 0:
        yield value.op
        return
    for operand in side[value.op].operands:
        yield from _variables(side, operand)


def _text(side: Side, value: Value, names: Mapping[int, str]) -> str:
    if value.op < 0:
        return names[value.op]
    op = side[value.op]
    operands = ", ".join(_text(side, operand, names) for operand in op.operands)
    part = f".{value.output}" if op.kind == "split" else ""
    return f"{op}({operands}){part}"


# From messages -----------------------------------------------------------------------------------


def _value(message: Message, op: int, output: int) -> Value:
    return Value(message.integer(op), message.integer(output))


def _check_value(value: Value, side: Sequence[TasoOp], where: str) -> None:
    """Raise unless ``value`` is a variable or an output of an operator of ``side``."""
    if value.op < 0:
        return
    if value.op >= len(side):
        raise RuleError(f"{where} reads operator {value.op}, which does not come before it")
    outputs = next(n for name, _, n in _KINDS.values() if name == side[value.op].kind)
    if not 0 <= value.output < outputs:
        raise RuleError(f"{where} reads output {value.output} of {side[value.op].kind}")


def _operator(message: Message, before: Sequence[TasoOp]) -> TasoOp:
    code = message.integer(1)
    if code not in _KINDS:
        raise RuleError(f"{message.name} is of unknown kind {code}; known: {sorted(_KINDS)}")
    kind, arity, _ = _KINDS[code]
    operands = tuple(_value(m, 1, 2) for m in message.messages(2, "operand"))
    if len(operands) != arity:
        raise RuleError(f"{message.name} has {len(operands)} operands; {kind} takes {arity}")
    for operand in operands:
        _check_value(operand, before, message.name)
    parameters: dict[str, int] = {}
    for parameter in message.messages(3, "parameter"):
        key = parameter.integer(1)
        if key not in _PARAMETERS:
            raise RuleError(f"{message.name} has an unknown parameter {key}")
        parameters[_PARAMETERS[key]] = parameter.integer(2)
    missing = [name for name in _NEEDED.get(kind, ()) if name not in parameters]
    if missing:
        raise RuleError(f"{message.name} lacks the parameter {missing[0]!r}")
    for name, limit in (("activation", len(ACTIVATIONS)), ("pad", len(PADS))):
        if not 0 <= parameters.get(name, 0) < limit:
            raise RuleError(f"{message.name} has {name} {parameters[name]}")
    return TasoOp(kind, operands, MappingProxyType(parameters))


def _side(messages: Sequence[Message]) -> Side:
    side: list[TasoOp] = []
    if len(messages) > _MOST_OPS:
        raise RuleError(f"{messages[0].name} and {len(messages) - 1} more: too many for a rule")
    for message in messages:
        side.append(_operator(message, side))
    return tuple(side)


def _rule(message: Message, number: int) -> TasoRule:
    source = _side(message.messages(1, "source operator"))
    target = _side(message.messages(2, "target operator"))
    pairs = []
    for output in message.messages(3, "output"):
        pair = Pair(_value(output, 1, 3), _value(output, 2, 4))
        _check_value(pair.source, source, message.name)
        _check_value(pair.target, target, message.name)
        if pair.source.op < 0:
            raise RuleError(f"{message.name} replaces a variable, so it would match everything")
        pairs.append(pair)
    if not pairs:
        raise RuleError(f"{message.name} replaces nothing")
    known = {v for pair in pairs for v in _variables(source, pair.source)}
    used = {v for pair in pairs for v in _variables(target, pair.target)}
    if not used <= known:
        raise RuleError(f"{message.name}: the source does not bind variable {-min(used - known)}")
    return TasoRule(number, source, target, tuple(pairs))


def read_taso(path: str | Path) -> tuple[TasoRule, ...]:
    """Read the rules of a substitution file, all or none.

    Raises:
        RuleError: the file cannot be read, ends early, or holds a rule that makes no sense.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise RuleError(f"{path} cannot be read: {error.strerror}") from error
    try:
        collection = parse(memoryview(data), "the file")
        if set(collection.fields) - {1}:
            raise RuleError("the file holds more than rules")
        rules = tuple(_rule(m, number) for number, m in enumerate(collection.messages(1, "rule")))
        if not rules:
            raise RuleError("the file holds no rule")
    except RuleError as error:
        raise RuleError(f"{path} is not an intact TASO substitution file: {error}") from error
    return rules
