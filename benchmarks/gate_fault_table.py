"""The faults of :mod:`benchmarks.gate_faults`: module, old text, new text, tests that must fail."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FAULTS", "Fault"]


@dataclass(frozen=True)
class Fault:
    """An edit of one module.

    Attributes:
        module: its dotted name.
        old: text that is there exactly once.
        new: what replaces it.
        tests: files or tests, one of which has to fail.
    """

    module: str
    old: str
    new: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.module}: {old} -> {new}"


_UNIT = "tests/unit/"
_PARTS = "tests/gate/test_prover_parts.py"
_GATE = "tests/gate/test_gate_parts.py"
_RANKS = tuple(
    f"tests/unit/proving/test_proof_ranks.py::test_what_low_ranks_{what}"
    for what in ("do_not_tell_is_not_proved", "tell_is_proved_for_any")
)
_Edits = tuple[tuple[str, str], ...]

_PROVER: dict[str, _Edits] = {
    "proof.sums.factor_matching": (
        ('return "power", exponent', 'return "power", 0'),
        ("return function, attrs, len(args)", "return function, len(args)"),
        ('return "extremum", kind', 'return "extremum", 0'),
        ('return "read", tensor', 'return "read", 0'),
        ("yield from (i - j for", "yield from (i + j for"),
    ),
    "typing.branching": (
        ("if name not in self.made:", "if True:"),
    ),
    "proof.budget": (
        ("self._left -= units", "self._left += units"),
        ("if min(self._left, self._total) < 0:", "if self._total < -units * 1000:"),
    ),
    "proof.definedness": (
        ("if demand.firm or _met(demand, facts, context):", "if True:"),
        ('demand.kind == "nonzero"\n        and any', 'demand.kind != "power"\n        and any'),
        ("facts if demand.firm else [*facts, *beside]", "[*facts, *beside]"),
        ("other.args[0] == 0:", "other.args[0] != 0:"),
        ("for demand in rights:", "for demand in rights[:0]:"),
        ("for fact in facts if fact.kind == demand.kind]", "for fact in facts]"),
        ("return isinstance(factor, Read | Parameter)", "return True"),
    ),
    "numbers.definitions": (
        ("_sigmoid(Times((_TWO, x))))), MINUS_ONE))", "_sigmoid(Times((_TWO, x))))), ONE))"),
        ("Constant(Fraction(1, 6)), _HALF", "Constant(Fraction(1, 3)), _HALF"),
        ('Call("Max", (), (x, Times((MINUS_ONE, x)))',
         'Call("Min", (), (x, Times((MINUS_ONE, x)))'),
        ('Call("Min", (), (Call("Max", (), (x, low)), high))',
         'Call("Max", (), (Call("Min", (), (x, high)), low))'),
    ),
    "proof.sums.denominators": (
        ("factor.exponent + 1)", "factor.exponent + 2)"),
        ("return multiply((part,), renamed(base))", "return (part,)"),
    ),
    "proof.demands": (
        ("known is Range.ANY\n    inverted", "known is Range.POSITIVE\n    inverted"),
        ("exponent < 0 and known is not Range.POSITIVE", "exponent < 0 and known is Range.ANY"),
        ("return replace(self, pole=False, root=False)", "return self"),
        ("sign = 1 if base[0].coefficient > 0 else -1", "sign = 1"),
        ("factor.exponent.numerator % 2 == 0", "factor.exponent.numerator % 2 == 1"),
        ("elif truth == bool(known):", "elif truth != bool(known):"),
        ("((then, holds), (otherwise, negate(holds)))", "((then, holds), (otherwise, holds))"),
        ('inner if kind == "sum" else inner.inside()', "inner"),
    ),
    "proof.driver": (
        ("if doubt or not _holds(scenario, context, known):", "if doubt:"),
        ("if doubt or not _holds(scenario, context, known):",
         "if not _holds(scenario, context, known):"),
        ("[: 1 + rule.bidirectional]", "[:1]"),
        ("known.statements.add(guarded if alone.used else bare)", "known.statements.add(bare)"),
        ("return context.feasible()", "return False"),
        ("    if not proved:\n", "    if False:\n"),
        ("if not vanishes(difference, context):\n                return False",
         "if not vanishes(difference, context):\n                return True"),
    ),
    "proof.sums.equality": (
        ("if a.coefficient + b.coefficient:", "if a.coefficient - b.coefficient:"),
        ("_covers(a, on_a, context) and _covers(b, on_b, context)",
         "_covers(a, on_a, context) or _covers(b, on_b, context)"),
        ("(split.condition, negate(split.condition))", "(split.condition,)"),
        ("all(context.same(i, j) for i, j in zip(a, moved",
         "any(context.same(i, j) for i, j in zip(a, moved"),
        ("_reaches(left, moved_factor, context) and _reaches(moved_factor, left, context)",
         "_reaches(left, moved_factor, context)"),
        ("return not context.feasible(*open_)", "return True"),
        ("if not all(_equal_factors(x, y, forth, context) for x, y in pairs):", "if False:"),
        ("conjunction([*part.where, negate(on)])", "conjunction([*part.where, on])"),
    ),
    "proof.sums.from_terms": (
        ('return extremum("max", [Case((), (), args[0]), Case((), (), ())])',
         'return extremum("min", [Case((), (), args[0]), Case((), (), ())])'),
        ("normalise(otherwise, names), negate(holds)", "normalise(otherwise, names), holds"),
        ("return args[1] if known else args[2]", "return args[2] if known else args[1]"),
        ("return power(args[0], Fraction(1, 2))", "return power(args[0], Fraction(1, 3))"),
        ("return negative(single(Opaque(name, attrs, (negative(args[0]),))))",
         "return single(Opaque(name, attrs, (negative(args[0]),)))"),
    ),
    "proof.sums.integers_z3": (
        ("return self._impossible(negate(formula))", "return self._impossible(formula)"),
        ("found = bool(solver.check() == self._z3.unsat)",
         "found = bool(solver.check() != self._z3.sat)"),
        ('f"(- {-coefficient})"', 'f"{-coefficient}"'),
        ("any_of(single, equal(value, index))", "equal(value, index)"),
        ("any_of(condition, equal(value, otherwise))", "any_of(condition, equal(value, then))"),
        ("self._ordered, self.assumptions = before", "pass"),
    ),
    "proof.sums.merging": (
        ("total = exponent + b.exponent", "total = exponent - b.exponent"),
        ("if roots and total.denominator == 1 and not is_positive(base):", "if False:"),
        ("negative(b.args[0])", "b.args[0]"),
        ("_is_truth(b) and same(a.args[0], b.args[0], context)", "_is_truth(b)"),
        ("if len(elements) == 1 else None", "if elements else None"),
    ),
    "proof.sums.normal": (
        ("a.coefficient * b.coefficient,", "a.coefficient + b.coefficient,"),
        ("conjunction([*a.where, *b.where])", "conjunction(a.where)"),
        ("coefficient=-part.coefficient", "coefficient=part.coefficient"),
        ("(within(atom(v), extent) for v, extent in part.bound)",
         "(within(atom(v), extent + 1) for v, extent in part.bound)"),
    ),
    "typing.parameters": (
        ("highest < 0 or (highest == 0 and strict)", "highest <= 0"),
        ('"positive" if strict or bounds[0] > 0 else "nonnegative"', '"positive"'),
        ("yield from _solved(b, a - right, floats)", "yield from _solved(b, right - a, floats)"),
        ("if _literal(right) or _literal(other):", "if True:"),
        ('"positive" if strict else "nonnegative"', '"positive"'),
    ),
    "proof.obligations": (
        ("before.get(axis) == place and bound", "bound"),
        (" and bound.isdisjoint(place.symbols())", ""),
        ("tuple(fact for fact in assumptions if fact not in rest)", "()"),
        ("yield sum_, frozenset(substitute", "yield sum_, frozenset() and frozenset(substitute"),
    ),
    "proof.sums.powers": (
        ("known > 0)", "known != 0)"),
        ("(odd and exponent.denominator % 2 == 0)", "(exponent.denominator % 2 == 0)"),
        ("factors.append(Power(single(factor), Fraction(-1)))", "factors.append(factor)"),
        ("coefficient=1 / part.coefficient, factors", "coefficient=part.coefficient, factors"),
        ("coefficient=p.coefficient * exponent)", "coefficient=p.coefficient)"),
        ("counts.get(prime, 0) - count", "counts.get(prime, 0) + count"),
        ("positive = [f for f in only.factors if is_positive_factor(f)]",
         "positive = list(only.factors)"),
        ("size, sign = abs(only.coefficient), 1 if only.coefficient > 0 else -1",
         "size, sign = abs(only.coefficient), 1"),
    ),
    "proof.sums.ranges": (
        ("max(found) if min(found) is not Range.ANY else Range.ANY", "max(found)"),
        ("if where == TRUE:", "if True:"),
        ("return min(range_of(then, integers), range_of(otherwise, integers))",
         "return max(range_of(then, integers), range_of(otherwise, integers))"),
        ("if known is not Range.POSITIVE and factor in factors:", "if factor is not None:"),
        ('case "Min":\n            return min(known)',
         'case "Min":\n            return max(known)'),
        ("value > 0, value >= 0", "value >= 0, value >= 0"),
    ),
    "proof.sums.reals_z3": (
        ('order = ">=" if kind == "max" else "<="', 'order = "<=" if kind == "max" else ">="'),
        ('f"(or {attained})"', '"true"'),
        ('"negative": "<"', '"negative": ">"'),
        ("bool(solver.check() == z3.unsat)", "bool(solver.check() != z3.sat)"),
        ('return [f"(> {name} 0)"]', 'return [f"(> {name} 1)"]'),
    ),
    "typing.scenario": (
        ("range(lowest, highest + 1)", "range(lowest, highest)"),
        ("get_op(op).choices[key])", "get_op(op).choices[key][:1])"),
        ("get_op(op).choices[key])", "get_op(op).choices[key][1:])"),
        ("itertools.permutations if self._is_indexed(name)",
         "itertools.combinations if self._is_indexed(name)"),
        ("premises.require(self.condition(condition))", "self.condition(condition)"),
        ('{"strides", "dilations"', '{"pads", "lo", "strides", "dilations"'),
        ('function = f"any {term.attrs[\'f\']}"', 'function = "any"'),
    ),
    "proof.sums.settle": (
        ("if extent.constant == 1:", "if extent.constant:"),
        ("where = conjunction([*part.where, within_extent(value, extent)])",
         "where = conjunction(part.where)"),
        ("integer(extent))", "integer(extent - 1))"),
        ("elif not context.feasible(condition):", "elif context.feasible(condition):"),
        ("for side in (split.condition, negate(split.condition))\n        )\n        return [c for",
         "for side in (split.condition,)\n        )\n        return [c for"),
        ("if where and not context.feasible(*domain(case)):", "if where:"),
        ("candidates = [c for c in _candidates(part) if context.same(atom(part), c)]",
         "candidates = list(_candidates(part))"),
        ("if is_positive(s, positive):", "if s:"),
        ("if all(c in kept or context.entails(c) for c in part.where):", "if True:"),
    ),
    "proof.sums.signs": (
        ("return part.coefficient > 0 and not part.where and factors", "return factors"),
        ('return sign == "positive"', 'return sign != "unknown"'),
        ("even = exponent.denominator % 2 == 0 and exponent < 0", "even = exponent < 0"),
        ("return known(integer)", "return True"),
    ),
    "proof.elements": (
        ("if ring and order:", "if False:"),
        ("    if rounding:\n", "    if False:\n"),
        ("or not float(known).is_integer()", ""),
        ("if any(operands) and term.op not in allowed:", "if False:"),
    ),
    "proof.axes.uneven": (
        ("_FARTHEST = 2", "_FARTHEST = 9"),
        ("if not _all_pinned(rule):", "if False:"),
        ("        if names & met:\n", "        if False:\n"),
        ("if bounded and high.args[0] <= HIGHEST_RANK:", "if bounded:"),
    ),
    "proof.axes.unions": (
        ("self._up[b] = a\n", "self._up[other] = a\n"),
        ("self.at_least(a, self._least.get(b, 0))", "pass"),
    ),
    "typing.unify": (
        ("for sign in (1, -1):", "for sign in (1,):"),
        ("if not self._divides_safely(equation, symbol):", "if False:"),
        ("coefficient > 0 and all", "all"),
        ("self.value(symbol) - 1)", "self.value(symbol))"),
        ("symbol in self.positive\n                and len", "len"),
        ("if all(is_positive(side, self.positive) for side in sides):", "if True:"),
    ),
    "typing.values": (
        ("return less(left, right)", "return less(right, left)"),
        ("return negate(equal(left, right))", "return all_of()"),
        ("if not is_positive(right, self.unifier.positive):", "if False:"),
        ("self.unifier.positive.add(symbol)", "pass"),
        ("return at_least(right, left)", "return less(left, right)"),
        ("pairs = zip(*(self.shape(name) for name in args), strict=True)", "pairs = ()"),
    ),
}  # fmt: skip

_HIGHER: dict[str, _Edits] = {
    "axes.reach": (
        ("told + (told + 1) * patterns", "told"),
        ("if frames.cyclic & {frames.families.find(key) for key in keys}:", "if False:"),
        ("if needed > MOST_RANKS:", "if False:"),
    ),
    "axes.frames": (
        ("self.padded.append(key)", "pass"),
    ),
    "axes.places": (("if self.named.setdefault(name, frame) != frame:", "if False:"),),
    "axes.relations": (("if groups.same(one, other):", "if False:"),),
    "axes.sliding": (
        ('raise _Unlike("a window behind another")', "pass"),
    ),
}  # fmt: skip
_LEVEL_1: dict[str, _Edits] = {
    "checks.bounds": (
        ("value=x.value + sign * y.value, error=x.error + y.error, terms=x.terms + y.terms",
         "value=x.value + sign * y.value, error=x.error + y.error, terms=x.terms"),
        ("_times(x.value, dy) + _times(y.value, dx)", "_times(x.value, dy)"),
        ("powers=(x.high + y.high, x.low + y.low)", "powers=(x.high, x.low)"),
        ("powers=(x.high + y.low, x.low + y.high)", "powers=(x.high + y.high, x.low + y.low)"),
        ("(rows.high > self._highest) | ", ""),
        ("if self._sensitive and any(", "if any("),
        ("np.maximum(rows.terms - 1.0, 0.0) * rows.total", "np.abs(rows.value)"),
        ("np.repeat(np.asarray(roundoffs, np.float64), len(draws))",
         "np.tile(np.asarray(roundoffs, np.float64), len(draws))"),
    ),
    "checks.classes": (
        ("found.append(_Suspect(one, roots))", "pass"),
        ("far = np.abs(left - right) > self.difference[..., draw]",
         "far = np.abs(left - right) < -1.0"),
        ("is Numerics.BITEXACT and case.computes_alike", "is Numerics.BITEXACT"),
        ("nothing = self.strained if strict else self.nothing", "nothing = self.nothing"),
        ("left.left | left.strained | ", "left.left | "),
    ),
    "numbers.terms": (
        ('"Gather", "ReduceMin", ', '"Gather", '),
        ("_mixed(key, _mixed(key, a) + _mixed(key, b))", "_mixed(key, _mixed(key, a) - b)"),
        ("_weights(function, count))\n", "np.ones(count, np.int64))\n"),
        ("left.shape == right.shape and bool(", "bool("),
        ('and str(value) != "-0.0"', ""),
        ("if len(types) > 1 and not", "if len(types) > 2 and not"),
        ('name if name == FLOAT.name else "exact"', "FLOAT.name"),
    ),
    "typing.closure": (
        ('yield Condition("==", condition.args[:2])', "yield condition"),
        ("max((c.args[2] for c", "min((c.args[2] for c"),
    ),
    "checks.counterexample": (
        ("if wrong.any():", "if wrong.all() and wrong.size > 10:"),
        ("for simple in (0, 1):", "for simple in ():"),
    ),
    "checks.degrees": (
        ("return _pack(n + m, d + e)", "return _pack(np.maximum(n, m), d + e)"),
        ("np.maximum(n + e, m + d)", "n + e"),
        ("self.is_polynomial and not m.any()", "self.is_polynomial"),
        ("min(0.0, self.trials * float", "min(0.0, float"),
    ),
    "numbers.designed": (
        ("return 1e9 if", "return 1.0 if"),
        ("yield sign * low\n", "yield low\n"),
        ("found = [2.0 * float(info.max)", "found = [0.5 * float(info.max)"),
        ("filled(name, pair[i % 2])", "filled(name, pair[0])"),
        ("rng.integers(0, 2, shape).astype(np.float64)", "rng.standard_normal(shape)"),
        ("float(info.tiny) / 8", "float(info.tiny) * 8"),
    ),
    "checks.differences": (
        ("numbers.wrong(left, right).any():\n                    return values, compared",
         "False:\n                    return values, compared"),
        ("whole[root] += ever is not None and bool(ever.all())", "pass"),
        ("and min(whole) > enough and computes_alike", "and computes_alike"),
        ("enough and computes_alike(sides, bindings, name):", "enough:"),
        ("is_bitexact = rule.numerics is Numerics.BITEXACT", "is_bitexact = True"),
    ),
    "numbers.draws": (
        ("rng.integers(0, 2, shape).astype(bool)", "rng.integers(0, 1, shape).astype(bool)"),
        ("for d in (-1.0, -0.5, 0.0, 0.5, 1.0)]", "for d in (0.0,)]"),
        ("_LOCAL.bits.state = _state(seed)", "_state(seed)"),
    ),
    "typing.element_types": (
        ("_require(term.args[number], dtype, found)", "_require(term.args[0], dtype, found)"),
        ("if number not in op.element_types", "if True"),
    ),
    "numbers.shapes": (
        ("return 1 / _exponential(-x, seed)", "return _exponential(-x, seed)"),
        ("return -_squashed(-x, key)", "return _squashed(-x, key)"),
    ),
    "instances.models_z3": (
        ("return self._sum(p) == 0", "return self._sum(p) >= 0"),
    ),
    "checks.empties": (
        ("if found is not None:\n                return found",
         "if False:\n                return found"),
    ),
    "numbers.evaluation": (
        ("places[key] = len(steps)\n", "places[key] = 0\n"),
        ("kept[dtype][0] is rule or kept[dtype][0].roots == rule.roots", "True"),
        ("key = op, operands, str(attrs)", "key = op, operands"),
        ("np.asarray(a * common)", "np.asarray(a)"),
        ("close = finite & (np.abs(left - right) <= _TOLERANCE * scale)", "close = finite"),
    ),
    "checks.exact": (
        ("if types[0] != types[1]:", "if types[0].rank != types[1].rank:"),
    ),
    "typing.extents": (
        ("and not _occurs(a, b)", ""),
        ("return other % factor == 0 and self.unify", "return self.unify"),
        ("and same[1] == factor:", ":"),
        ("b < a.low", "b < 0"),
        ("b.low = max(a.low, b.low)", "b.low = min(a.low, b.low)"),
    ),
    "gate": (
        ("if report.refutation is not None:\n            raise", "if False:\n            raise"),
        ("    _raise_if_rounded(rule, seed, max_points)\n", ""),
        ("    _raise_if_empty_differs(rule, seed, max_points)\n", ""),
        ("    _raise_if_too_far(rule, seed, max_points)\n", ""),
    ),
    "typing.hints": (
        ("if any(condition.kind == \"is-float\" for condition in when):", "if False:"),
        ("max(self._least.get(name, 0), axis + 1)", "max(self._least.get(name, 0), axis)"),
    ),
    "instances.search": (
        ("types = _types(self.rule, found)", "types = True"),
        ("key=_size", "key=lambda one: -_size(one)[0]"),
    ),
    "typing.landmarks": (
        ("for d in (-1, 0, 1)}", "for d in (0,)}"),
    ),
    "instances.courses": (
        ("return _mixed(keys, np.sign(result)), result", "return keys, result"),
        ("holds &= _compared(condition.kind, *sides)", "pass"),
        ("several = dict.fromkeys((*fitting[:_EACH], *fitting[multiples[fitting]][:_EACH]))",
         "several = dict.fromkeys(fitting[:_EACH])"),
        ("np.where(large, np.where(differ, 2, 1), 0)", "np.zeros(cells.shape[1], np.int64)"),
        ("counts, kind=\"stable\")[:_PLENTY]", "-counts, kind=\"stable\")[:1]"),
        ("n.kind != \"attr\" or n.args[0] not in floats", "True"),
    ),
    "instances.left_side": (
        ("and all(holds(pin, found, _unrelated) for pin in pins)", ""),
        ("found |= {a + b, a - b, a * b, a // b if b else a}", "pass"),
        ("fits(self._lhs, self._when, bindings)", "fits(self._lhs, (), bindings)"),
    ),
    "checks.margins": (
        ("_WITHIN = 0.9", "_WITHIN = 0.0"),
        ("if values is not None:\n                    return found",
         "if False:\n                    return found"),
        ("_MOST = 16.0", "_MOST = 1e12"),
    ),
    "checks.methods": (
        ("if not chosen and not operators & _ORDERED", "if not operators & set()"),
        ('"float" in op.attrs.values() or ', ""),
        ('"order" in op.traits or op.keeps_elements', "True"),
    ),
    "typing.derived_schemes": (
        ("_RANKS = 4", "_RANKS = 1"),
        ("(abs(rank - 2), rank)", "(abs(rank - 7), rank)"),
        ("if ranks[number] == len(shape)]", "]"),
        ("t.equal(extents[monomial[0]], _extent(rest * -coefficient, extents))", "pass"),
    ),
    "typing.movement_schemes": (
        ("lo = t.extents.new(low=0)", "lo = 0"),
    ),
    "typing.open_attributes": (
        ("more = marks.reals if min(options) <= 0 else marks.positive", "more = ()"),
    ),
    "checks.precision": (
        ("return float(np.abs(exact[finite] - result[finite]).max()) / scale", "return 0.0"),
    ),
    "numbers.rationals": (
        ("if _is_finite(v) else v for", "if not _is_finite(v) else v for"),
    ),
    "numbers.reals": (
        ("rng.choice(_HALVES, shape)", "values"),
        ("compared & ~(np.abs(left - right) <= rounding)",
         "compared & (np.abs(left - right) > rounding)"),
        ("_RELATIVE = 2e-7", "_RELATIVE = 2e-1"),
    ),
    "numbers.records": (
        ("(self.terms - 1.0) * self.total", "self.total"),
        ("np.where(absorbed, 0.0, rounding)", "rounding"),
    ),
    "checks.rounding": (
        ("if isinstance(found.attrs[name], float)]", "]"),
    ),
    "typing.schemes": (
        ('if attribute(t, term, "keepdims", (1, 0)):', 'if attribute(t, term, "keepdims", (1,)):'),
    ),
    "typing.templates": (
        ("values = [0 if i == place", "values = [1 if i == place"),
    ),
    "numbers.angles": (
        ("field.sub(p, inverse)", "field.add(p, inverse)"),
        ("neither = ~self._is_square(opposite)", "neither = self._is_square(opposite)"),
    ),
    "numbers.casts": (
        ("found[id(term)] = None", "pass"),
        ("found[id(term)] = to", "pass"),
        ("            return to\n", "            return operands[0]\n"),
    ),
    "numbers.twofield": (
        ("self._raised(self._base, a.q)", "self._raised(self._base, a.p)"),
        ("no_p = x.no_p | e.no_q | ~(whole | square)", "no_p = x.no_p | e.no_q"),
        ("nothing = (y.p == 0) & ~y.no_p", "nothing = np.zeros_like(y.no_p)"),
        ("return np.asarray(equal_p & (", "return np.asarray(equal_p | ("),
    ),
    "typing.most_general": (
        ("usual = (len(base), *range(len(base)), len(base) + 1)", "usual = (len(base),)"),
        ('if how == "y":\n                self.equal(y, 1)',
         'if how == "y":\n                self.equal(y, 2)'),
    ),
    "certificates.certificate": (
        ("if one.is_sealed}", "}"),
        ("if now is not None and now != certificate.fingerprint:", "if False:"),
        ("if certificate.level < 1:", "if certificate.level < 0:"),
        ("if value[\"level\"] > _HIGHEST_LEVEL:", "if False:"),
    ),
    "certificates.plain": (
        ("type(value) is int and 0 <= value", "isinstance(value, int) and 0 <= value"),
        ("type(value) is float and math.isfinite(value)", "type(value) is float"),
        ("if value.keys() != kinds.keys():", "if not value.keys() <= kinds.keys():"),
    ),
    "certificates.cache": (
        ('put(_KIND, key, {"certificate": asdict(certificate)})', "pass"),
    ),
    "certificates.sealed": (
        ("return content if hmac.compare_digest(_seal(place, content), seal) else None",
         "return content"),
        ("and not stat.S_IMODE(status.st_mode) & 0o077", ""),
    ),
    "certificates.semantics": (
        ('return f"literal {_attr(value.args[0])}"', 'return "literal"'),
        ('*(f"when {_condition(condition)}" for condition in rule.when),', ""),
        ('*(f"right {_term(term)}" for term in rule.rhs),', ""),
    ),
    "typing.window_schemes": (
        ('attribute(t, term, "count_include_pad", (0, 1))',
         'attribute(t, term, "count_include_pad", (0,))'),
    ),
}  # fmt: skip
_BELOW: dict[str, _Edits] = {
    "eqsat_opt.rules.bindings": (
        ("return bool(left < right)", "return bool(left <= right)"),
        ("abs(left - right) <= args[2] * abs(right)", "abs(left - right) <= args[2]"),
        ("if kind in (\"/\", \"//\") and right == 0:", "if False:"),
        ("not 0 <= index < len(sequence)", "not index < len(sequence)"),
    ),
    "eqsat_opt.ir.ops.linear": (
        ("return floor_div(span, stride) + 1\n",
         "return floor_div(span + stride - 1, stride) + 1\n"),
        ("x.shape[1] == w.shape[1] * attrs[\"group\"]", "True"),
    ),
    "eqsat_opt.ir.ops.moving.movement": (
        ("tuple(x.shape[p] for p in attrs[\"perm\"])", "tuple(x.shape)"),
        ("and hi <= size", ""),
    ),
    "eqsat_opt.ir.ops.functions": (
        ("exact=lambda x, _a: -(-x // 1)", "exact=lambda x, _a: x // 1"),
        ("exact=lambda x, _a: (x > 0) - (x < 0)", "exact=lambda x, _a: (x > 0) - (x <= 0)"),
        ("exact=lambda x, a: x if x > a[\"alpha\"] else 0",
         "exact=lambda x, a: x if x < a[\"alpha\"] else 0"),
    ),
    "eqsat_opt.ir.ops._base": (("if -axis > len(shape):", "if -axis >= len(shape):"),),
    "eqsat_opt.ir.ops.reduction": (
        ("tuple(1 if i in axes else d for i, d in enumerate(x.shape))",
         "tuple(1 if i not in axes else d for i, d in enumerate(x.shape))"),
    ),
    "eqsat_opt.ir.ops.index.polynomials": (
        ("        if factor not in rest:\n            return None\n        rest",
         "        if factor not in rest:\n            continue\n        rest"),
    ),
    "eqsat_opt.ir.ops.index.integers": (
        ("return poly(n // d)", "return poly(-(-n // d))"),
        ("return poly(0) if known == 1 else index", "return poly(0) if known != 1 else index"),
    ),
}  # fmt: skip

_SEMANTICS = "tests/property/test_index_semantics.py::test_one_operator"
_INDEXED: dict[str, tuple[tuple[str, str, str], ...]] = {
    "index.movement": (
        ("source = [position - pads[i]", "source = [position + pads[i]", "Pad"),
        ("index[axis] - ends[k]", "index[axis]", "Concat"),
        ("places = [perm.index(axis) for axis in range(x.rank)]", "places = perm", "Transpose"),
        ("index[axis] + lo", "index[axis]", "Slice"),
    ),
    "index.linear": (
        ("k[i] * self.dilations[i] - self.before[i]", "k[i] - self.before[i]", "Conv"),
        ("quotient(o, share) * w.shape[1]", "poly(0)", "Conv"),
    ),
    "index.reduction": (
        ("return Times((_over(\"sum\", x, axes, index), Inverse(count)))",
         "return Times((_over(\"sum\", x, axes, index), count))", "ReduceMean"),
        ("if keepdims or axis not in axes", "if axis not in axes", "ReduceSum"),
    ),
    "index.attention": (
        ("scaled = Times((attrs[\"scale\"], product))", "scaled = product", "Attention"),
    ),
}  # fmt: skip

_RESTS = "tests/unit/proving/test_foundations.py::test_"
_FOUNDATIONS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "certificates.meaning": (
        ("and key in OPS} - self._operators", "and key in OPS}",
         "every_function_of_an_operator_counts"),
        ("held = dict(zip(value.__code__.co_freevars, cells, strict=True))", "held = {}",
         "what_a_function_was_made_with_counts"),
        ('if not inner.startswith(f"{PACKAGE}.") or inner.startswith(_SILENT):', "if inner:",
         "what_the_verifier_rests_on"),
        ('or f"unknown {id(value)}"', 'or "unknown"',
         "without_its_source_a_function_is_always_another"),
        ("            for one in spelling.names\n", "            for one in ()\n",
         "an_edit_of_an_operator"),
    ),
    "certificates.foundations": (
        ("more = (record.strings & OPS.keys()) - parts", "more = set()", "properties_count"),
        ('(data["format"], data["sources"]) == (_FORMAT, mark)', 'data["format"] == _FORMAT',
         "a_manifest_that_does_not_fit_decides_nothing"),
        (' and data["operators"].keys() == OPS.keys()', "",
         "a_manifest_that_does_not_fit_decides_nothing"),
        ("    if found and _is_settled():", "    if found:",
         "what_may_have_changed_since_is_not_kept"),
    ),
    "certificates.syntax": (
        ("if parts and name not in _UNSAID:", "if parts:", "only_the_meaning_of_a_text_counts"),
        ("return [max(found, key=lambda one: (_inside(one, places), one.lineno, "
         "one.col_offset))]", "return found[:1]", "lambdas_on_one_line_are_distinguished"),
        ("if isinstance(node, ast.JoinedStr):", "if False:",
         "versions_of_python_spell_a_tree_alike"),
    ),
}  # fmt: skip

_TRUE = "tests/unit/proving/test_proof.py::test"
FAULTS = [
    Fault(
        "eqsat_opt.proving.typing.choices",
        "way[-1][1] + 1 >= way[-1][0].core",
        "way[-1][1] + 2 >= way[-1][0].core",
        (
            f"{_UNIT}proving/test_rule_instances.py::test_enumeration_is_lexicographic_and_covers_the_core",
        ),
    ),
    Fault(
        "eqsat_opt.proving.checks.rounding",
        "np.add.accumulate(a, axis=-1, dtype=a.dtype)[..., -1]",
        "np.sum(a, axis=-1)",
        (_GATE,),
    ),
    Fault(
        "eqsat_opt.proving.numbers.literals",
        "_ULPS = 4\n",
        "_ULPS = 4_000_000\n",
        (f"{_UNIT}proving/test_literals.py",),
    ),
    Fault(
        "eqsat_opt.proving.proof.sums.integers_z3",
        "less(numerator, below + denominator)",
        "less(numerator, below + 1)",
        (f"{_TRUE}_definitions_are_true",),
    ),
    Fault(
        "eqsat_opt.proving.proof.sums.integers_z3",
        "at_least(difference, shared)),\n",
        "at_least(difference, shared + 1)),\n",
        (f"{_TRUE}_facts_about_products_are_true",),
    ),
    Fault(
        "eqsat_opt.ir.ops.index.polynomials",
        "return divide(-rest, factor) if factor.terms else None",
        "return divide(rest, factor) if factor.terms else None",
        (_PARTS,),
    ),
    *(
        Fault(f"eqsat_opt.proving.{module}", old, new, (_PARTS,))
        for module, edits in _PROVER.items()
        for old, new in edits
    ),
    *(
        Fault(f"eqsat_opt.proving.proof.{module}", old, new, _RANKS)
        for module, edits in _HIGHER.items()
        for old, new in edits
    ),
    *(
        Fault(f"eqsat_opt.proving.{module}", old, new, (_GATE,))
        for module, edits in _LEVEL_1.items()
        for old, new in edits
    ),
    *(
        Fault(f"eqsat_opt.proving.{module}", old, new, (f"{_RESTS}{test}",))
        for module, edits in _FOUNDATIONS.items()
        for old, new, test in edits
    ),
    *(Fault(module, old, new, (_GATE,)) for module, edits in _BELOW.items() for old, new in edits),
    *(
        Fault(f"eqsat_opt.ir.ops.{module}", old, new, (f"{_SEMANTICS}[{op}]",))
        for module, edits in _INDEXED.items()
        for old, new, op in edits
    ),
    Fault(
        "eqsat_opt.proving.proof.record",
        "self.statements.append(statement)",
        "self.stated += 0",
        ("tests/unit/checking/test_evidence.py",),
    ),
]
