"""Objectives as text, for instance `time+0.25*critical_path(time)` or `energy/time`.

Every command that minimises something reads its objective by this grammar:

objective = sum | product | ratio
sum       = term {"+" term}
term      = [number "*"] (metric | "critical_path" "(" weights ")")
weights   = [number "*"] metric {"+" [number "*"] metric}
product   = power "*" power            power = metric ["^" number]
ratio     = part "/" part              part  = metric | "(" weights ")"
limit     = (metric | "critical_path" ["(" weights ")"] | "max" "(" metric ")") ("=" | "<=") number
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from eqsat_opt.errors import ExtractionError, OptionError
from eqsat_opt.extract.objective import (
    CRITICAL_PATH,
    AnyObjective,
    Objective,
    Product,
    Ratio,
)

__all__ = ["limit_texts", "objective_text", "parse_objective"]

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_][\w.]*)"
    r"|(?P<sign><=|[-+*/^()=]))"
)
_EXAMPLE = "write for instance time+0.5*bytes, bytes^0.5*time^0.5 or bytes/time"
_LIMIT_EXAMPLE = "write for instance time=3.5, critical_path(time)=2 or max(workspace)=1e6"
_CAP = "max"
_FACTORS = ("name", "*", "name")


def parse_objective(
    text: str | Mapping[str, float],
    limits: Iterable[str] = (),
    *,
    metric: Callable[[str], str] = lambda name: name,
) -> AnyObjective:
    """Read an objective and its limits.

    Args:
        text: for instance `time`, `time+0.5*energy`, `time+0.25*critical_path(time)`,
            `energy^0.5*time^0.5` or `energy/time`; or the weights of a sum, by metric.
        limits: each for instance `time=3.5` (largest total), `critical_path=2` (the longest chain,
            measured as in the objective), `critical_path(time)=2` or `max(workspace)=1e6` (largest
            value of one implementation).
        metric: function from a metric's name in the text to its name in the problem; it raises
            `OptionError` for one that does not exist. The default keeps every name as written.

    Raises:
        OptionError: the text is not in the grammar of this module, or a number is invalid.
    """
    try:
        if isinstance(text, str):
            objective = _Parser(text, _EXAMPLE, metric).objective()
        else:
            objective = Objective(_merged((metric(name), w) for name, w in text.items()))
        bounds = [_Parser(limit, _LIMIT_EXAMPLE, metric).limit() for limit in limits]
        paths = [bound.path for bound in bounds if bound.path] + [objective.path]
        if len({tuple(sorted(path.items())) for path in paths if path}) > 1:
            raise OptionError("critical paths of two kinds; name the same metrics in both")
        if len({(bound.name, bound.is_cap) for bound in bounds}) < len(bounds):
            raise OptionError("two limits name the same metric; keep the smaller one")
        return replace(
            objective,
            limits={bound.name: bound.value for bound in bounds if not bound.is_cap},
            path=next((path for path in paths if path), {}),
            caps={bound.name: bound.value for bound in bounds if bound.is_cap},
        )
    except ExtractionError as error:
        raise OptionError(f"objective {text!r}: {error}") from error


def objective_text(objective: AnyObjective) -> str:
    """Return the value to minimise as `parse_objective` reads it; without the limits."""
    if isinstance(objective, Product):
        return "*".join(
            name if x == 1 else f"{name}^{_number_text(x)}"
            for name, x in objective.exponents.items()
        )
    if isinstance(objective, Ratio):
        return f"{_part_text(objective.numerator)}/{_part_text(objective.denominator)}"
    terms = [_sum_text(objective.weights)] if any(objective.weights.values()) else []
    if objective.critical_path:
        terms.append(_term_text(_path_text(objective), objective.critical_path))
    return "+".join(terms)


def limit_texts(objective: AnyObjective) -> tuple[str, ...]:
    """Return the limits and caps, each as `parse_objective` reads it."""
    return (
        *(
            f"{_path_text(objective) if name == CRITICAL_PATH else name}<={_number_text(x)}"
            for name, x in objective.limits.items()
        ),
        *(f"{_CAP}({name})<={_number_text(x)}" for name, x in objective.caps.items()),
    )


def _path_text(objective: AnyObjective) -> str:
    return f"{CRITICAL_PATH}({_sum_text(objective.path)})"


def _part_text(weights: Mapping[str, float]) -> str:
    text = _sum_text(weights)
    return text if text in weights else f"({text})"


def _sum_text(weights: Mapping[str, float]) -> str:
    return "+".join(_term_text(name, weight) for name, weight in weights.items() if weight)


def _term_text(name: str, weight: float) -> str:
    return name if weight == 1 else f"{_number_text(weight)}*{name}"


def _number_text(value: float) -> str:
    return repr(value).removesuffix(".0")


def _merged(terms: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return weights by metric; a metric that is named twice counts twice."""
    weights: dict[str, float] = {}
    for name, weight in terms:
        weights[name] = weights.get(name, 0.0) + weight
    return weights


@dataclass(frozen=True)
class _Bound:
    name: str
    value: float
    path: Mapping[str, float] = field(default_factory=dict)
    is_cap: bool = False


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str


class _Parser:
    """Recursive descent parser of one text."""

    def __init__(self, text: str, example: str, metric: Callable[[str], str]) -> None:
        self._text, self._example, self._named = text, example, metric
        self._tokens = self._split(text)
        self._at = 0

    def objective(self) -> AnyObjective:
        if any(token.text == "/" for token in self._tokens):
            above = self._part()
            self._expect("/")
            below = self._part()
            self._end()
            return Ratio(above, below)
        triples = zip(self._tokens, self._tokens[1:], self._tokens[2:], strict=False)
        if any(b.text == "^" or (a.kind, b.text, c.kind) == _FACTORS for a, b, c in triples):
            powers = self._power()
            while self._take("*"):
                for name, power in self._power().items():
                    powers[name] = powers.get(name, 0.0) + power
            self._end()
            return Product(powers)
        return self._sum()

    def limit(self) -> _Bound:
        name = self._name()
        path: dict[str, float] = {}
        is_cap = name == _CAP and self._take("(")
        if is_cap:
            name = self._metric()
            self._expect(")")
        elif name != CRITICAL_PATH:
            name = self._named(name)
        elif self._take("("):
            path = self._weights()
            self._expect(")")
        if not self._take("<="):
            self._expect("=")
        value = self._number()
        self._end()
        return _Bound(name, value, path, is_cap)

    def _sum(self) -> Objective:
        weights: dict[str, float] = {}
        alpha = 0.0
        path: dict[str, float] = {}
        while True:
            factor = self._factor()
            name = self._name()
            if name == CRITICAL_PATH:
                if path:
                    raise self._error("has more than one critical path; name one")
                self._expect("(")
                alpha, path = factor, self._weights()
                self._expect(")")
            else:
                name = self._named(name)
                weights[name] = weights.get(name, 0.0) + factor
            if not self._take("+"):
                break
        self._end()
        return Objective(weights, alpha, path=path if alpha else {})

    def _weights(self) -> dict[str, float]:
        weights: dict[str, float] = {}
        while True:
            factor, name = self._factor(), self._metric()
            weights[name] = weights.get(name, 0.0) + factor
            if not self._take("+"):
                return weights

    def _factor(self) -> float:
        """Read a number and `*`; return 1 where there is none."""
        if self._peek() is None or self._tokens[self._at].kind != "number":
            return 1.0
        number = self._number()
        self._expect("*")
        return number

    def _part(self) -> dict[str, float]:
        if not self._take("("):
            return {self._metric(): 1.0}
        weights = self._weights()
        self._expect(")")
        return weights

    def _power(self) -> dict[str, float]:
        name = self._metric()
        return {name: self._number() if self._take("^") else 1.0}

    def _metric(self) -> str:
        return self._named(self._name())

    def _name(self) -> str:
        return self._next("name", "a metric")

    def _number(self) -> float:
        return float(self._next("number", "a number"))

    def _next(self, kind: str, wanted: str) -> str:
        token = self._peek()
        if token is None or token.kind != kind:
            found = f"found {token.text!r}" if token else "the text ends"
            raise self._error(f"needs {wanted} where {found}")
        self._at += 1
        return token.text

    def _peek(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self, sign: str) -> bool:
        token = self._peek()
        if token is None or token.text != sign:
            return False
        self._at += 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            token = self._peek()
            found = f"found {token.text!r}" if token else "the text ends"
            raise self._error(f"needs {sign!r} where {found}")

    def _end(self) -> None:
        token = self._peek()
        if token is not None:
            raise self._error(f"has {token.text!r} where it should end")

    def _error(self, problem: str) -> OptionError:
        return OptionError(f"{self._text!r} {problem}; {self._example}")

    def _split(self, text: str) -> list[_Token]:
        tokens: list[_Token] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._error(f"has {text[at:].strip()[0]!r}, which has no meaning here")
            tokens.append(_Token(str(match.lastgroup), match.group(match.lastgroup or 0)))
            at = match.end()
        return tokens
