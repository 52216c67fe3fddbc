"""TASO's substitutions: the file, what becomes of its rules, and what is refused."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from eqsat_opt.egraph.derivation.derive import Prover
from eqsat_opt.errors import RuleError
from eqsat_opt.lab.conformance import GROUP_CONDITION, Conformance, classify
from eqsat_opt.proving import check_rule
from eqsat_opt.proving.taso import Groups, TasoRule, read_taso, to_rule
from eqsat_opt.proving.taso.equations import parse_rule, published_rules
from eqsat_opt.proving.taso.handwritten import HAND_WRITTEN
from eqsat_opt.rules.axioms import EQUATIONS, axioms
from eqsat_opt.rules.bindings import Bindings, type_of
from eqsat_opt.rules.rule import Rule

FILE = Path(
    os.environ.get("TASO_PB")
    or Path(__file__).parents[4] / "shared" / "data" / "taso" / "graph_subst.pb"
)
READABLE = FILE.with_name("taso_rules.txt")
needs_file = pytest.mark.skipif(
    not FILE.is_file(), reason=f"needs TASO's rule file: set TASO_PB or put it at {FILE}"
)

WRONG = [99, 100, 130, 131]
ONLY_UNGROUPED = [98, 105, 125, 126, 127, 128, 129]

Fields = Sequence[tuple[int, "int | bytes"]]


# The equations that come with the package --------------------------------------------------------


@needs_file
def test_the_equations_are_those_of_the_file() -> None:
    for ours, theirs in zip(published_rules(), read_taso(FILE), strict=True):
        assert str(ours) == str(theirs)
        for groups in Groups:
            assert str(to_rule(ours, groups)) == str(to_rule(theirs, groups))


def test_equations_are_read_as_they_are_printed() -> None:
    assert len(published_rules()) == 133
    for one in published_rules():
        assert parse_rule(str(one), one.number) == one


@pytest.mark.parametrize(
    "line",
    [
        "",
        "relu(x)",
        "relu(x) => x y",
        "relu(x) => relu[2](x)",
        "conv(x, y) => conv(y, x)",
        "?(x) => x",
    ],
)
def test_what_is_no_equation_is_refused(line: str) -> None:
    with pytest.raises(RuleError, match="is no rule of TASO"):
        parse_rule(line, 0)


# A file of our own -------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def message(*fields: tuple[int, int | bytes]) -> bytes:
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += _varint(number << 3) + _varint(value)
        else:
            out += _varint(number << 3 | 2) + _varint(len(value)) + value
    return out


def operator(
    code: int, operands: Sequence[tuple[int, int]], parameters: Sequence[tuple[int, int]] = ()
) -> bytes:
    return message(
        (1, code),
        *((2, message((1, op), (2, output))) for op, output in operands),
        *((3, message((1, key), (2, value))) for key, value in parameters),
    )


def output(source: int = 0, target: int = 0) -> bytes:
    return message((1, source), (2, target), (3, 0), (4, 0))


CONV, RELU, CONCAT, SPLIT, ADD, MATMUL = 3, 8, 12, 13, 16, 18
RELU_OF_SUM = operator(ADD, [(-1, 0), (-2, 0)]), operator(RELU, [(0, 0)])
SUM_SWAPPED = operator(ADD, [(-2, 0), (-1, 0)]), operator(RELU, [(0, 0)])


def rule_message(source: Sequence[bytes], target: Sequence[bytes], *outputs: bytes) -> bytes:
    return message(
        *((1, op) for op in source), *((2, op) for op in target), *((3, one) for one in outputs)
    )


SMALL = message((1, rule_message(RELU_OF_SUM, SUM_SWAPPED, output(1, 1))))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "rules.pb"
    path.write_bytes(SMALL)
    return path


def _read(path: Path, data: bytes) -> tuple[TasoRule, ...]:
    path.write_bytes(data)
    return read_taso(path)


def test_a_file_is_read(written: Path) -> None:
    (one,) = read_taso(written)
    assert str(one) == "relu(ewadd(x, y)) => relu(ewadd(y, x))"
    assert str(to_rule(one)) == ("Relu((x + y)) => Relu((y + x))   when same-shape(x, y)")


def test_every_truncation_is_refused(written: Path) -> None:
    for length in range(len(SMALL)):
        with pytest.raises(RuleError, match="not an intact TASO substitution file"):
            _read(written, SMALL[:length])


def test_damage_is_refused_or_reads_as_a_rule(written: Path) -> None:
    """Whatever the bytes, there are rules or a typed error and nothing else."""
    rng = random.Random(0)
    messages: list[str] = []
    for _ in range(400):
        data = bytearray(SMALL)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            rules = _read(written, bytes(data))
        except RuleError as error:
            messages.append(str(error))
        else:
            assert all(str(one) for one in rules)
    assert len(messages) > 100
    assert all(len(text.splitlines()) == 1 for text in messages)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "holds no rule"),
        (b"not a protobuf at all", "not an intact TASO substitution file"),
        (message((2, b"")), "more than rules"),
        (message((1, 7)), "needs messages"),
        (message((1, b"")), "replaces nothing"),
        (message((1, rule_message(RELU_OF_SUM, SUM_SWAPPED))), "replaces nothing"),
        (message((1, rule_message([operator(99, [])], [], output()))), "unknown kind 99"),
        (message((1, rule_message([operator(RELU, [])], [], output()))), "relu takes 1"),
        (
            message((1, rule_message([operator(RELU, [(0, 0)])], [], output()))),
            "reads operator 0, which does not come before it",
        ),
        (
            message((1, rule_message([operator(RELU, [(-1, 0)])], [], output(0, 0)))),
            "reads operator 0",
        ),
        (
            message((1, rule_message([operator(RELU, [(-1, 0)])], [], output(-1, -1)))),
            "replaces a variable",
        ),
        (
            message((1, rule_message([operator(RELU, [(-1, 0)])], [], output(0, -2)))),
            "does not bind variable 2",
        ),
        (
            message((1, rule_message([operator(CONCAT, [(-1, 0)] * 2)], [], output(0, -1)))),
            "lacks the parameter 'axis'",
        ),
        (
            message((1, rule_message([operator(RELU, [(-1, 0)], [(77, 1)])], [], output(0, -1)))),
            "unknown parameter 77",
        ),
        (
            message((1, rule_message([operator(MATMUL, [(-1, 0)] * 2, [(9, 8)])], [], output()))),
            "activation 8",
        ),
        (
            message((1, rule_message([operator(RELU, [(-1, 0)])] * 17, [], output(0, -1)))),
            "too many for a rule",
        ),
        (b"\x0a" + b"\xff" * 11, "more than 64 bits"),
        (b"\x09" + bytes(8), "has a field 0"),
        (b"\x0b", "unknown wire type 3"),
        (b"\x0a" + b"\xff" * 3, "ends early"),
    ],
)
def test_nonsense_is_refused_with_its_reason(written: Path, data: bytes, reason: str) -> None:
    with pytest.raises(RuleError, match=reason):
        _read(written, data)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="cannot be read"):
        read_taso(tmp_path / "nowhere.pb")


CONVOLUTION = [(6, 2), (7, 2), (9, 0)]
"""Stride 2, no activation."""


def _convolution(pad: int) -> bytes:
    conv = operator(CONV, [(-1, 0), (-2, 0)], [*CONVOLUTION, (8, pad)])
    return message((1, rule_message([conv], [conv], output())))


def test_same_padding_at_stride_2_cannot_be_made_explicit(written: Path) -> None:
    (one,) = _read(written, _convolution(pad=0))
    with pytest.raises(RuleError, match="depends on the extent of the data"):
        to_rule(one)
    with pytest.raises(RuleError, match="depends on the extent of the data"):
        classify(written)
    (valid,) = _read(written, _convolution(pad=1))
    assert "pads=(0, 0, 0, 0)" in str(to_rule(valid))


def test_a_split_needs_a_concatenation(written: Path) -> None:
    split = operator(SPLIT, [(-1, 0)], [(11, 1)])
    (one,) = _read(written, message((1, rule_message([split], [split], output()))))
    with pytest.raises(RuleError, match="which no concatenation made"):
        to_rule(one)


def test_a_small_file_is_classified(written: Path) -> None:
    seen: list[tuple[int, int, str]] = []
    result = classify(written, progress=lambda *state: seen.append(state))
    total = 1 + len(HAND_WRITTEN)
    assert [state[:2] for state in seen] == [(i, total) for i in range(1, total + 1)]
    (verdict,) = result.verdicts
    assert verdict.status == "derived"
    assert verdict.derivation is not None
    assert verdict.derivation.axioms == ("elementwise/add-commute",)
    assert verdict.any_group is None
    assert result.sound == (verdict.rule,)


def test_a_wrong_rule_in_a_file_is_not_sound(written: Path) -> None:
    target = operator(ADD, [(-1, 0), (-1, 0)]), operator(RELU, [(0, 0)])
    written.write_bytes(message((1, rule_message(RELU_OF_SUM, target, output(1, 1)))))
    result = classify(written)
    assert [v.status for v in result.verdicts] == ["refuted"]
    assert result.sound == ()
    assert "elements differ" in str(result.verdicts[0])


# TASO's file -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rules() -> tuple[TasoRule, ...]:
    return read_taso(FILE)


@pytest.fixture(scope="module")
def result(rules: tuple[TasoRule, ...]) -> Conformance:
    return classify(rules)


@needs_file
def test_there_are_133_rules(rules: tuple[TasoRule, ...]) -> None:
    assert [one.number for one in rules] == list(range(133))
    assert sum(len(one.outputs) == 2 for one in rules) == 13
    assert str(rules[128]) == (
        "concat[ax1/4d](conv[s1x1,same,relu](x, y), conv[s1x1,same,relu](x, z)) => "
        "conv[s1x1,same,relu](x, concat[ax0/4d](y, z))"
    )


@needs_file
def test_the_text_is_that_of_the_readable_decoding(rules: tuple[TasoRule, ...]) -> None:
    if not READABLE.is_file():
        pytest.skip(f"needs the readable decoding at {READABLE}")
    lines = [line.strip() for line in READABLE.read_text().splitlines() if line[:1] != "#"]
    heads = [i for i, line in enumerate(lines) if line.split(" ")[0].isdigit()]
    assert len(heads) == len(rules)
    for i, one in zip(heads, rules, strict=True):
        sides = [pair.split(" => ") for pair in str(one).split(" | ")]
        left, right = (" | ".join(side) for side in zip(*sides, strict=True))
        assert lines[i + 1 : i + 3] == [left, f"=> {right}"]


@needs_file
def test_129_are_derived_and_4_refuted(result: Conformance) -> None:
    assert result.count("derived") == 129
    assert [v.rule.name for v in result.verdicts if v.status == "refuted"] == [
        f"taso/{number}" for number in WRONG
    ]
    assert result.count("open") == 0
    assert len(result.sound) == 129
    assert "133 rules: 129 derived, 4 refuted; 7 of the derived" in result.summary


@needs_file
def test_7_are_wrong_on_grouped_convolutions(result: Conformance) -> None:
    conditional = [v.rule.name for v in result.conditional]
    assert conditional == [f"taso/{number}" for number in ONLY_UNGROUPED]
    for verdict in result.conditional:
        assert verdict.condition == GROUP_CONDITION
        assert verdict.any_group_refutation is not None
        groups = [
            value for key, value in verdict.any_group_refutation.attrs.items() if key[0] == "g"
        ]
        assert max(groups) > 1, "a counterexample needs groups, since the rule is derived for one"
    others = {v.any_group for v in result.verdicts if v not in result.conditional}
    assert others == {"derived", "refuted", None}


@needs_file
def test_the_condition_saves_them(rules: tuple[TasoRule, ...]) -> None:
    for number in ONLY_UNGROUPED:
        assert check_rule(to_rule(rules[number], kernel=1), max_points=20).passed


@needs_file
def test_counterexamples_are_instances_of_the_rule(
    result: Conformance, rules: tuple[TasoRule, ...]
) -> None:
    for number in WRONG:
        refutation = result.verdicts[number].refutation
        assert refutation is not None
        one = to_rule(rules[number], Groups.ORDINARY, kernel=1)
        bindings = Bindings(dict(refutation.types), dict(refutation.attrs))
        for left, right in zip(one.lhs, one.rhs, strict=True):
            assert type_of(left, bindings) == type_of(right, bindings)


@needs_file
@pytest.mark.parametrize("number", [*WRONG, *ONLY_UNGROUPED])
def test_a_counterexample_can_be_pasted_into_a_test(result: Conformance, number: int) -> None:
    verdict = result.verdicts[number]
    refutation = verdict.refutation or verdict.any_group_refutation
    assert refutation is not None
    with pytest.raises(AssertionError):
        exec(refutation.code, {})


@needs_file
def test_derivations_say_from_what(result: Conformance) -> None:
    def axioms_of(number: int) -> tuple[str, ...]:
        derivation = result.verdicts[number].derivation
        assert derivation is not None
        return derivation.axioms

    assert axioms_of(0) == ("matmul/assoc",)
    assert axioms_of(64) == ()  # a fused activation is an activation
    assert axioms_of(125) == ("equations/conv-filters",)
    assert set(axioms_of(77)) == {
        "equations/matmul-columns", "concat/slice-left", "concat/slice-right", "concat/whole-slice",
    }  # fmt: skip


@needs_file
@pytest.mark.parametrize("equation", [name for name, rules in EQUATIONS.items() if rules])
def test_no_equation_can_be_left_out(
    result: Conformance, rules: tuple[TasoRule, ...], equation: str
) -> None:
    prover = Prover(axioms(), iterations=4, most=1)
    only = set(EQUATIONS[equation])
    for other, names in EQUATIONS.items():
        only -= set(names) if other != equation else set()
    users = [
        number
        for number, verdict in enumerate(result.verdicts)
        if verdict.derivation is not None and only <= set(verdict.derivation.axioms)
    ]
    assert any(
        prover.derive(to_rule(rules[number]), without=sorted(only), minimise=False) is None
        for number in users
    )


@needs_file
def test_the_result_is_plain_data(result: Conformance) -> None:
    plain = json.loads(json.dumps(result.to_json()))
    assert (plain["rules"], plain["derived"], plain["refuted"], plain["open"]) == (133, 129, 4, 0)
    assert plain["only_ungrouped"] == [f"taso/{number}" for number in ONLY_UNGROUPED]
    assert plain["verdicts"][125]["condition"] == GROUP_CONDITION
    assert str(result).count("\n") > 133


# Hand-written rules ------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", HAND_WRITTEN, ids=lambda one: one.name)
def test_hand_written_rules_are_refused(wrong: Rule) -> None:
    report = check_rule(wrong, max_points=40, minimise=False)
    assert not report.passed
    assert report.refutation is not None
