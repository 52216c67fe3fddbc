"""Certificates: every default rule has one, and what happens when it does not fit any more."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from eqsat_opt.errors import CertificateError, RuleError, RuleRefuted
from eqsat_opt.lab import certification
from eqsat_opt.lab.certification import SerialExecutor, verify, write_book
from eqsat_opt.proving import selection
from eqsat_opt.proving.certificates.certificate import (
    Certificate,
    read_certificates,
    why_invalid,
    write_certificates,
)
from eqsat_opt.proving.certificates.semantics import fingerprint, rule_text
from eqsat_opt.proving.describe import certificate_text
from eqsat_opt.proving.gate import certify_exact
from eqsat_opt.proving.selection import (
    book_certificates,
    default_rules,
    excluded_rules,
    load_rules,
    standings,
)
from eqsat_opt.rules import Numerics, Rule, families, rule
from eqsat_opt.rules import rulebooks as rulebooks_module
from eqsat_opt.rules.rule import Numerics as NumericsClass
from eqsat_opt.rules.rule import Sides, Tensor
from eqsat_opt.rules.term import Apply, Term, Var, is_float, ops

BOOK = {one.name: one for rules in families().values() for one in rules}

RIGHT = """
from eqsat_opt.rules.rule import Tensor, rule
from eqsat_opt.rules.term import ops

@rule("mine/abs")
def absolute(x: Tensor):
    "Twice is once."
    return ops.Abs(ops.Abs(x)), ops.Abs(x)
"""
WRONG = """
@rule("mine/concat")
def shuffled(x: Tensor, y: Tensor):
    "The parts in the wrong order."
    return ops.Concat(x, y, axis=0), ops.Concat(y, x, axis=0)
"""


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Certificates of users' rules stay in the test's own folder."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("EQSAT_OPT_CACHE", str(folder))
    return folder


@pytest.fixture
def fresh_library() -> Iterator[None]:
    """The library reads its certificates anew, before and after."""
    selection._standings.cache_clear()
    selection._warn.cache_clear()
    yield
    selection._standings.cache_clear()
    selection._warn.cache_clear()


# The book ----------------------------------------------------------------------------------------


def test_every_rule_of_the_book_is_certified() -> None:
    missing = excluded_rules()
    assert not missing, f"run eqsat-opt rules verify --write: {missing}"


def test_most_rules_are_proven_for_all_sizes() -> None:
    levels = Counter(one.certificate.level for one in standings().values() if one.certificate)
    print(f"rules by level: {dict(sorted(levels.items()))}")
    assert levels[0] == 0
    assert levels[2] + levels[3] >= 0.8 * len(BOOK)


def test_certificates_say_what_they_cover() -> None:
    for one in standings().values():
        certificate = one.certificate
        assert certificate is not None
        ways = 2 if one.rule.bidirectional else 1
        assert len(certificate.directions) == ways
        assert 0.0 <= certificate.float32 < 1e-3, one.rule.name
        assert 0.0 <= certificate.float16 < 1e-1, one.rule.name
        for direction in certificate.directions:
            assert direction.instances >= 20
            assert direction.largest_extent >= 3
            if "random functions" in direction.method:
                assert direction.log2_bound is not None
                assert direction.log2_bound <= -50
        if certificate.level == 2:
            assert "all sizes" in certificate.scope
        text = certificate_text(certificate)
        assert f"level {certificate.level}" in text
        assert "float16" in text


def test_only_what_moves_data_is_free_of_rounding() -> None:
    """A rule that is bit exact by data movement alone has no error at all."""
    assert standings()["concat/slice-of-slice"].certificate.float16 == 0.0  # type: ignore[union-attr]
    assert standings()["matmul/assoc"].certificate.float16 > 0.0  # type: ignore[union-attr]


def test_check_at_load_is_cheap() -> None:
    """Counted in calls, which no other process on the machine adds to."""
    code = (
        "import sys, eqsat_opt.proving as r, eqsat_opt.rules; r.load_rules\n"
        "eqsat_opt.rules.families(); calls = []\n"
        "def note(frame, event, argument):\n"
        "    if event == 'call': calls.append(1)\n"
        "sys.setprofile(note); rules = r.default_rules(); sys.setprofile(None)\n"
        "print(len(calls) / len(rules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          check=True, cwd=Path(__file__).parents[3])  # fmt: skip
    per_rule = float(done.stdout)
    print(f"a certificate of the book is checked in {per_rule:.0f} calls")
    assert per_rule < 400  # to verify a rule takes hundreds of thousands


# What a certificate rests on ---------------------------------------------------------------------


def test_fingerprint_follows_the_rule() -> None:
    one = BOOK["concat/slice-left"]
    assert fingerprint(one) == fingerprint(replace(one, doc="other words"))
    changed = [
        replace(one, when=()),
        replace(one, rhs=BOOK["concat/slice-right"].rhs),
        replace(one, numerics=NumericsClass.RELAXED),
        replace(one, bidirectional=True),
        replace(one, kinds=tuple((n, "Weight") for n, _ in one.kinds)),
    ]
    assert len({fingerprint(other) for other in (one, *changed)}) == len(changed) + 1


def test_fingerprint_sees_attributes_of_infix_operators() -> None:
    def zero(x: Tensor) -> Sides:
        return x + ops.Scalar(value=0.0, dtype="float32"), x

    def one(x: Tensor) -> Sides:
        return x + ops.Scalar(value=1.0, dtype="float32"), x

    assert rule_text(rule("test/a")(zero)) != rule_text(rule("test/a")(one))


def test_no_name_makes_one_rule_read_as_another() -> None:
    """What is kept for a right rule must not serve a wrong one."""

    def product(left: Term, *right: Term) -> Sides:
        return Apply("Mul", (left, *right), {}), Var("x")

    two = rule("test/a")(lambda: product(Var("x"), Var("y")))
    one = rule("test/a")(lambda: product(Var("x'; tensor 'y"), Var("x")))
    other = rule("test/a")(lambda: product(Var("x, tensor y"), Var("x")))
    assert len({rule_text(each) for each in (two, one, other)}) == 3
    assert "tensor 'x, tensor y'" in rule_text(other)


# Stale, missing, edited --------------------------------------------------------------------------


def books_without(monkeypatch: pytest.MonkeyPatch, name: str, other: Certificate | None) -> None:
    real = book_certificates

    def changed(family: str, *, strict: bool = True) -> dict[str, Certificate]:
        found = real(family, strict=strict)
        if name in found:
            del found[name]
            if other is not None:
                found[name] = other
        return found

    monkeypatch.setattr(selection, "book_certificates", changed)


def test_missing_certificate_takes_a_rule_out(
    monkeypatch: pytest.MonkeyPatch, fresh_library: None, caplog: pytest.LogCaptureFixture
) -> None:
    books_without(monkeypatch, "matmul/assoc", None)
    with caplog.at_level(logging.WARNING):
        names = {one.name for one in default_rules()}
        default_rules()
    assert "matmul/assoc" not in names
    assert "matmul/block-sum" in names
    warnings = [r.getMessage() for r in caplog.records if "matmul/assoc" in r.getMessage()]
    assert warnings == ["matmul/assoc is left out: it has no certificate"]
    assert "matmul/assoc" not in {one.name for one in load_rules("matmul", Numerics.RELAXED)}


def test_reports_of_runs_name_what_is_left_out(
    monkeypatch: pytest.MonkeyPatch, fresh_library: None
) -> None:
    from eqsat_opt.pipeline.report import rule_notes

    assert rule_notes() == ()
    selection._standings.cache_clear()
    books_without(monkeypatch, "matmul/assoc", None)
    (note,) = rule_notes()
    assert "matmul/assoc left out of the default set: it has no certificate" in note


def test_stale_certificate_takes_a_rule_out(
    monkeypatch: pytest.MonkeyPatch, fresh_library: None
) -> None:
    stale = replace(
        book_certificates("transpose")["transpose/compose-3d"], fingerprint="0" * 32
    ).sealed()
    books_without(monkeypatch, "transpose/compose-3d", stale)
    assert "transpose/compose-3d" not in {one.name for one in default_rules()}
    assert "stale" in excluded_rules()["transpose/compose-3d"]
    # Whoever names it has it verified on the spot.
    assert [one.name for one in load_rules("transpose/compose-3d", Numerics.RELAXED)] == [
        "transpose/compose-3d"
    ]


def test_what_is_derived_needs_what_it_is_derived_from(
    monkeypatch: pytest.MonkeyPatch, fresh_library: None
) -> None:
    one, axiom = BOOK["elementwise/factor"], BOOK["elementwise/mul-commute"]
    known = book_certificates("elementwise")
    derived = known[one.name].raised(one, 3, "derived", axioms=(axiom.name,))
    monkeypatch.setattr(selection, "book_certificates", lambda *_: {**known, one.name: derived})
    assert standings()[one.name].obstacle == ""
    selection._standings.cache_clear()
    stale = replace(known[axiom.name], fingerprint="0" * 32).sealed()
    known = {**known, axiom.name: stale}
    obstacle = standings()[one.name].obstacle
    assert obstacle == f"it is derived from {axiom.name}, which is not certified"


def test_level_0_is_not_enough() -> None:
    one = standings()["pool/max-relu"]
    assert one.certificate is not None
    sampled = replace(one.certificate, level=0).sealed()
    assert "floating point" in why_invalid(one.rule, sampled)


@pytest.mark.parametrize("key", ["level", "float32", "scope", "fingerprint", "digest"])
def test_edited_certificate_is_an_error(tmp_path: Path, key: str) -> None:
    path = tmp_path / "book.json"
    write_certificates(path, book_certificates("pool").values())
    assert len(read_certificates(path)) == len(families()["pool"])
    data = json.loads(path.read_text())
    value = data["certificates"][1][key]
    data["certificates"][1][key] = value + 1 if isinstance(value, int | float) else f"{value}x"
    path.write_text(json.dumps(data))
    name = data["certificates"][1]["rule"]
    with pytest.raises(CertificateError, match=f"certificate of {name} in .* was edited by hand"):
        read_certificates(path)
    assert name not in read_certificates(path, strict=False)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("\x00", "Expecting value"),
        ("[" * 100_000, "recursion"),
        ("[]", "not of format 2"),
        ("{}", "not of format 2"),
        ('{"format": 99, "certificates": []}', "not of format 2"),
        ('{"format": 2, "certificates": {}}', "lists no certificates"),
        ('{"format": 2, "certificates": [{"rule": "a"}]}', "lacks the key 'axioms'"),
    ],
    ids=lambda value: value[:40],
)
@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("book.json", "rules verify book --write"),
        ("mine.certificates.json", r"rules import \S*mine\.py --write"),
    ],
)
def test_damaged_file_of_certificates(
    tmp_path: Path, text: str, why: str, name: str, command: str
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(CertificateError, match=f"not a file of certificates .*{why}.*{command}$"):
        read_certificates(path)
    assert read_certificates(path, strict=False) == {}


def test_certificates_survive_the_file(tmp_path: Path) -> None:
    path = tmp_path / "book.json"
    before = book_certificates("lrn")
    write_certificates(path, before.values())
    assert read_certificates(path) == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(CertificateError, match="cannot make"):
        write_certificates(tmp_path / "book.json" / "below.json", before.values())


# Rulebooks of users ------------------------------------------------------------------------------


def test_wrong_rule_in_a_rulebook_loads_nothing(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(RIGHT + WRONG)
    with pytest.raises(RuleRefuted, match=r"rule mine/concat is wrong: x: float32\[1") as caught:
        load_rules(f"default,{path}", Numerics.RELAXED)
    assert "\n" not in str(caught.value)
    assert "np.testing" in caught.value.refutation.code  # type: ignore[attr-defined]


def test_rule_that_cannot_be_evaluated(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        RIGHT.replace("x: Tensor", "x: Tensor, p: Ints")
        .replace("import Tensor", "import Ints, Tensor")
        .replace("ops.Abs(ops.Abs(x)), ops.Abs(x)", "ops.Transpose(x, perm=p), "
                 "ops.Transpose(x, perm=p + 1)")
    )  # fmt: skip
    with pytest.raises(RuleRefuted, match="mine/abs cannot be evaluated") as caught:
        load_rules(str(path), Numerics.RELAXED)
    assert "\n" not in str(caught.value)


def test_rule_over_an_unknown_operator(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(RIGHT.replace("ops.Abs(x)\n", "ops.Absolute(x)\n"))
    with pytest.raises(RuleError, match=r"mine\.py: line 8: unknown operator 'Absolute'"):
        load_rules(str(path), Numerics.RELAXED)


def test_file_that_is_no_python(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("rule: x + 0 => x\n  indeed\n")
    with pytest.raises(RuleError, match="is not Python: line") as caught:
        load_rules(str(path), Numerics.RELAXED)
    assert "\n" not in str(caught.value)
    path.write_bytes(b"\x7fELF\x00\x00")
    with pytest.raises(RuleError, match=r"mine\.py (is not Python|cannot be loaded)"):
        load_rules(str(path), Numerics.RELAXED)


def test_rule_that_only_floating_point_accepts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("""
from eqsat_opt.rules import *

@rule("mine/double-angle", numerics=Numerics.RELAXED)
def double(x: Tensor):
    y = ops.Sin(x)
    product = ops.Sin(y) * ops.Cos(y)
    return ops.Sin(ops.Scale(y, factor=2.0)), ops.Scale(product, factor=2.0), is_float(x)
""")
    with pytest.raises(RuleRefuted, match="no exact method confirms it"):
        load_rules(str(path), Numerics.RELAXED)


def test_installed_rulebooks_pass_the_gate(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def point(name: str, loaded: object) -> SimpleNamespace:
        return SimpleNamespace(name=name, load=lambda: loaded)

    def wrong(x: Tensor) -> Sides:
        return ops.Relu(x), ops.Abs(x), is_float(x)

    points = [
        point("good", [BOOK["transpose/compose-3d"]]),
        point("bad", [rule("bad/relu")(wrong)]),
        point("empty", []),
    ]

    def entry_points(group: str, name: str | None = None) -> list[SimpleNamespace]:
        assert group == "eqsat_opt.rulebooks"
        return [one for one in points if name in (None, one.name)]

    monkeypatch.setattr(rulebooks_module, "entry_points", entry_points)
    assert rulebooks_module.installed_rulebooks() == ("bad", "empty", "good")
    assert load_rules("good", Numerics.RELAXED) == [BOOK["transpose/compose-3d"]]
    with pytest.raises(RuleRefuted, match="bad/relu is wrong"):
        load_rules("bad", Numerics.RELAXED)
    with pytest.raises(RuleError, match="holds no rules"):
        load_rules("empty", Numerics.RELAXED)


# Certification -----------------------------------------------------------------------------------

SAMPLE = ("transpose/compose-3d", "matmul/slice-rows")


def sample() -> list[Rule]:
    return [BOOK[name] for name in SAMPLE]


@pytest.fixture(scope="module")
def certified() -> dict[str, Certificate]:
    """Of the sample, without any executor."""
    return {one.name: certify_exact(one) for one in sample()}


@pytest.mark.parametrize("executor", [SerialExecutor(), ThreadPoolExecutor(2)])
def test_any_executor_gives_the_same_certificates(
    executor: SerialExecutor | ThreadPoolExecutor, certified: dict[str, Certificate]
) -> None:
    seen: list[str] = []
    with executor:
        outcomes = verify(
            sample(),
            level=1,
            executor=executor,
            progress=lambda _done, _of, what: seen.append(what),
        )
    assert [one.rule.name for one in outcomes] == list(SAMPLE)
    assert sorted(seen) == sorted(f"checked {name}" for name in SAMPLE)
    for one in outcomes:
        assert one.passed
        assert one.certificate == certified[one.rule.name]


def test_wrong_rule_gets_no_certificate() -> None:
    def wrong(x: Tensor, y: Tensor) -> Sides:
        return x - y, y - x

    bad, good = verify([rule("bad/sub")(wrong), *sample()[:1]], level=1)
    assert (bad.passed, bad.certificate) == (False, None)
    assert isinstance(bad.error, RuleRefuted)
    assert good.passed


def test_proofs_that_cannot_be_redone_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {name: standings()[name].certificate for name in SAMPLE}
    assert all(one is not None and one.level == 2 for one in known.values())
    monkeypatch.setattr(certification, "_prove", lambda *_: ("missing", "", "no z3 here", 0.0))
    certain = {name: one for name, one in known.items() if one is not None}
    for one in verify(sample(), level=2, known=certain):
        assert one.certificate is not None
        assert one.certificate.level == 2
        assert one.notes == ("no z3 here", "level 2 as certified before, not redone")
    for one in verify(sample(), level=2):
        assert one.certificate is not None
        assert one.certificate.level == 1


def test_derivation_is_level_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certification, "_prove", lambda *_: ("unknown", "", "not tried", 0.0))
    goal = BOOK["elementwise/factor"]

    def both(x: Tensor, y: Tensor, z: Tensor) -> Sides:
        return y * x + x * z, (z + y) * x

    axioms = [goal, BOOK["elementwise/add-commute"], BOOK["elementwise/mul-commute"]]
    derived = rule("test/factor", numerics=Numerics.REASSOCIATE)(both)
    (outcome,) = verify([derived], level=3, axioms=axioms)
    assert outcome.certificate is not None
    assert outcome.certificate.level == 3
    assert set(outcome.certificate.axioms) <= {one.name for one in axioms}
    assert "derived at" in outcome.certificate.scope


def test_books_are_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certification, "certificate_path", lambda f: tmp_path / f"{f}.json")
    outcomes = verify(sample()[:1], level=1)
    (written,) = write_book(outcomes)
    found = read_certificates(Path(written))
    assert list(found) == [one.name for one in families()["transpose"]]
    assert found["transpose/map"] == book_certificates("transpose")["transpose/map"]
    assert (tmp_path / "sources.json").is_file()  # and what certificates rest on, for quick starts


def test_certificates_of_an_earlier_version_are_none(tmp_path: Path) -> None:
    """Whoever has a rulebook of their own gets it verified again, and no error."""
    path = tmp_path / "book.json"
    write_certificates(path, book_certificates("lrn").values())
    path.write_text(path.read_text().replace('"format": 2', '"format": 1', 1))
    assert read_certificates(path) == {}
