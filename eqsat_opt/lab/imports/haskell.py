"""A part of Haskell: definitions, `do` and expressions, as TensorRight's rules use them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from eqsat_opt.lab.imports.foreign import Unsayable

__all__ = [
    "Definition",
    "HaskellCall",
    "HaskellRecord",
    "HaskellStatement",
    "Lambda",
    "Node",
    "definitions",
    "parse",
]

_COMMENT = re.compile(r"--+(?![!#$%&*+./<=>?@\\^|~:-]).*")
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<name>@?[A-Za-z_][\w.']*)|(?P<number>\d+)"""
    r"""|(?P<sign>-->|->|<-|::|[.]&&|[.]\|\||[.]==|[.]/=|[.]<=|[.]>=|[.]<|[.]>|<>|@@|[-+*$\\=,(){}\[\]]))"""
)
_LEVELS = (("$",), ("<>",), (".||",), (".&&",), (".==", ".<=", ".>=", ".<", ".>", "./="), ("-->",),
           ("@@",), ("+", "-"), ("*",))  # fmt: skip
"""Operators, the loosest first; `$` applies, and is right-associative."""


@dataclass(frozen=True)
class HaskellCall:
    """A name, literal or operator with its arguments: `f x y`, `x + y`, `[x, y]`, `"x"`."""

    head: str
    args: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Lambda:
    """A function of Haskell with its arguments and its body."""

    names: tuple[str, ...]
    body: Node


@dataclass(frozen=True)
class HaskellRecord:
    """A record `Slice {start = x}`."""

    name: str
    fields: Mapping[str, Node] = field(hash=False)


Node = HaskellCall | Lambda | HaskellRecord


@dataclass(frozen=True)
class HaskellStatement:
    """A statement of a `do`: the names that it binds, and an expression."""

    names: tuple[str, ...]
    value: Node


@dataclass(frozen=True)
class Definition:
    """A definition at the top level.

    Attributes:
        name: its name.
        parameters: names of its arguments.
        text: its right side.
    """

    name: str
    parameters: tuple[str, ...]
    text: str

    def statements(self) -> Iterator[HaskellStatement]:
        """Yield the statements of a `do`, or the expression alone.

        Raises:
            Unsayable: a statement is of another form.
        """
        first, _, rest = self.text.partition("\n")
        if first.strip() != "do":
            yield HaskellStatement((), parse(self.text))
            return
        lines = [line for line in rest.splitlines() if line.strip()]
        margin = min(len(line) - len(line.lstrip()) for line in lines)
        parts: list[str] = []
        for line in lines:
            if len(line) - len(line.lstrip()) > margin and parts:
                parts[-1] += "\n" + line
            else:
                parts.append(line)
        for part in parts:
            yield _statement(part)


def definitions(text: str) -> dict[str, Definition]:
    """Return the definitions of a module, by name; types and imports are left out."""
    plain = "\n".join(_COMMENT.sub("", line).rstrip() for line in text.splitlines())
    found: dict[str, Definition] = {}
    for part in re.split(r"\n(?=[a-z])", plain):
        match = re.match(r"([a-z]\w*)((?: \w+)*) =\s?", part)
        if match:
            found[match[1]] = Definition(match[1], tuple(match[2].split()), part[match.end() :])
    return found


def _statement(text: str) -> HaskellStatement:
    bound = re.match(r"\s*(\w+|\[[\w\s,]*\])\s*<-(.*)", text, re.DOTALL)
    if bound:
        return HaskellStatement(tuple(re.findall(r"\w+", bound[1])), parse(bound[2]))
    named = re.match(r"\s*let (\w+)\s*=(?!=)(.*)", text, re.DOTALL)
    if named:
        return HaskellStatement((named[1],), parse(named[2]))
    if re.match(r"\s*(let|forM|if|case)\b", text):
        raise Unsayable("a function or branch of Haskell in a rule")
    return HaskellStatement((), parse(text))


def parse(text: str) -> Node:
    """Return an expression.

    Raises:
        Unsayable: it has a form that is not read.
    """
    tokens, at = [], 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            raise Unsayable(f"the Haskell of {text[at : at + 20].strip()!r}")
        tokens.append((str(found.lastgroup), found[str(found.lastgroup)]))
        at = found.end()
    parser = _Parser(tokens)
    node = parser.operators(0)
    if parser.peek() != "":
        raise Unsayable(f"the Haskell of {parser.peek()!r}")
    return node


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.tokens, self.place = tokens, 0

    def peek(self) -> str:
        return self.tokens[self.place][1] if self.place < len(self.tokens) else ""

    def take(self, wanted: str | None = None) -> str:
        token = self.peek()
        if not token or wanted not in (None, token):
            raise Unsayable(f"the Haskell of {token or 'an unfinished expression'!r}")
        self.place += 1
        return token

    def operators(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self.application()
        left = self.operators(level + 1)
        while self.peek() in _LEVELS[level]:
            sign = self.take()
            if sign == "$":
                right = self.operators(0)
                if not isinstance(left, HaskellCall):
                    raise Unsayable("the Haskell of `$`")
                return HaskellCall(left.head, (*left.args, right))
            left = HaskellCall(sign, (left, self.operators(level + 1)))
        if level == 0 and self.peek() == "::":
            while self.peek() not in ("", ")", ",", "]"):
                self.take()
        return left

    def application(self) -> Node:
        if self.peek() == "-":
            self.take()
            return HaskellCall("negate", (self.application(),))
        if self.peek() == "\\":
            return self.function()
        head = self.atom()
        args = []
        while self.place < len(self.tokens) and self.starts_atom():
            args.append(self.function() if self.peek() == "\\" else self.atom())
        if not args:
            return head
        if not isinstance(head, HaskellCall) or head.args:
            raise Unsayable("the Haskell of an applied expression")
        return HaskellCall(head.head, tuple(args))

    def starts_atom(self) -> bool:
        kind, token = self.tokens[self.place]
        return kind in ("text", "name", "number") or token in ("(", "[", "\\")

    def function(self) -> Lambda:
        self.take("\\")
        pattern = self.atom()
        self.take("->")
        if not isinstance(pattern, HaskellCall):
            raise Unsayable("the Haskell of a pattern")
        names = pattern.args if pattern.head == "[]" else (pattern,)
        return Lambda(tuple(n.head for n in names if isinstance(n, HaskellCall)), self.operators(0))

    def atom(self) -> Node:
        token = self.take()
        if token == "(":
            node = self.operators(0)
            if self.peek() == ",":
                raise Unsayable("a tuple of Haskell")
            self.take(")")
            return node
        if token == "[":
            items = []
            while self.peek() != "]":
                items.append(self.operators(0))
                if self.peek() != "]":
                    self.take(",")
            self.take("]")
            return HaskellCall("[]", tuple(items))
        if self.peek() == "{":
            return self.record(token)
        return HaskellCall(token)

    def record(self, name: str) -> HaskellRecord:
        fields = {}
        self.take("{")
        while self.peek() != "}":
            key = self.take()
            self.take("=")
            fields[key] = self.operators(0)
            if self.peek() != "}":
                self.take(",")
        self.take("}")
        return HaskellRecord(name, fields)
