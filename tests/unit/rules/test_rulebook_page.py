"""The pages on rules: the rulebook leads to every rule, and what own-rules.md shows is true."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from eqsat_opt import rules as language
from eqsat_opt.cli.app import run
from eqsat_opt.ir.ops import OPS
from eqsat_opt.proving import describe
from eqsat_opt.proving.selection import load_rules, standings
from eqsat_opt.rules import (
    Int,
    Numerics,
    Phase,
    Rule,
    Sides,
    Tensor,
    Weight,
    families,
    ops,
    rule,
)
from eqsat_opt.rules.glossary import OPERATORS
from eqsat_opt.rules.term import MAP, Apply

OWN_RULES = Path(__file__).parents[3] / "docs" / "own-rules.md"


def _anchor(heading: str) -> str:
    """As GitHub makes it of a heading: lower case, punctuation dropped, spaces to hyphens."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _contents(page: str) -> dict[str, list[str]]:
    """Rows of the table by family: rules, proven or derived, at instances."""
    rows = (line.strip("| ").split("|") for line in page.splitlines() if line.startswith("| "))
    return {row[0].strip("[ ").split("]")[0]: [c.strip() for c in row[1:4]] for row in rows}


def test_every_link_leads_to_a_heading() -> None:
    page = describe.rulebook_markdown()
    headings = [_anchor(line.lstrip("#")) for line in page.splitlines() if line.startswith("#")]
    assert len(headings) == len(set(headings))
    links = set(re.findall(r"\]\(#([^)]*)\)", page))
    pages = set(re.findall(r"\]\((\w[^)#]*)", page))
    assert pages
    assert all((OWN_RULES.parent / one).is_file() for one in pages)
    assert links <= set(headings)
    assert {_anchor(name) for name in (*standings(), *families())} <= links


def test_contents_count_rules_by_level(monkeypatch: pytest.MonkeyPatch) -> None:
    known = dict(standings())
    (weak, gone, *rest) = (one.name for one in families()["matmul"])
    certificate = known[weak].certificate
    assert certificate is not None
    known[weak] = replace(known[weak], certificate=replace(certificate, level=1), obstacle="")
    known[gone] = replace(known[gone], obstacle="it is stale")
    for name in rest:
        known[name] = replace(known[name], obstacle="")
    monkeypatch.setattr(describe, "standings", lambda: known)
    page = describe.rulebook_markdown()
    found = _contents(page)
    assert found["matmul"] == [str(len(rest) + 2), str(len(rest)), "1"]
    assert found["all"][0] == str(len(known))
    weaker = next(line for line in page.splitlines() if line.startswith("Not proven for all"))
    assert f"[{weak}](#{_anchor(weak)})" in weaker
    assert gone not in weaker
    left_out = next(line for line in page.splitlines() if line.startswith("Not in the default"))
    assert f"[{gone}](#{_anchor(gone)})" in left_out


def test_every_operator_that_onnx_lacks_is_explained() -> None:
    every = (one for rules in families().values() for one in rules)
    terms = (term for one in every for root in (*one.lhs, *one.rhs) for term in root.walk())
    used = {term.op for term in terms if isinstance(term, Apply)} - {MAP}
    named = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}
    # How a Pad of some modes, a Slice with a step and a Clip at computed bounds are read: no rule
    # speaks of these.
    assert used - named == set(OPS) - named - {"Clamp", "Continued", "StridedSlice"}
    assert used - named == set(OPERATORS) - {"Clamp", "Continued", "StridedSlice"}
    page = describe.rulebook_markdown()
    assert "| `Scale(x, factor)` | " in page
    assert "| `MaskedAttention(q, k, v, m, scale)` | " in page


def test_repeated_equations_are_those_of_other_families() -> None:
    """Recognition needs its own copies; a rule with another condition or kind is no copy."""

    def added(x: Tensor, y: Tensor) -> Sides:
        return x + y, y + x

    def renamed(b: Tensor, a: Tensor) -> Sides:
        return b + a, a + b

    def with_weight(x: Tensor, y: Weight) -> Sides:
        return x + y, y + x

    def with_condition(x: Tensor, y: Tensor) -> Sides:
        return x + y, y + x, x.rank == 2

    def with_attribute(axis: Int, x: Tensor) -> Sides:
        return ops.Softmax(ops.Relu(x), axis=axis), ops.Softmax(x, axis=axis)

    def with_renamed_attribute(i: Int, y: Tensor) -> Sides:
        return ops.Softmax(ops.Relu(y), axis=i), ops.Softmax(y, axis=i)

    def law(phase: Phase, function: Callable[..., Sides]) -> Rule:
        return rule(f"test/{function.__name__.replace('_', '-')}", phase=phase)(function)

    book = {
        "one": [law(Phase.EXPLORE, one) for one in (added, with_attribute)],
        "other": [
            law(Phase.SIMPLIFY, renamed),
            *(
                law(Phase.RECOGNISE, one)
                for one in (renamed, with_weight, with_condition, with_renamed_attribute)
            ),
        ],
    }
    names = [one.name for one in describe.repeated(book)]
    assert names == ["test/renamed", "test/with-renamed-attribute"]
    again = describe.repeated(families())
    assert "affine/add-commute" in {one.name for one in again}
    assert f"Of these, {len(again)} repeat an equation" in describe.rulebook_markdown()


@pytest.mark.parametrize("where", [[], ["missing/page.md"], ["file/page.md"], ["."]])
def test_a_page_without_a_place_is_one_line(where: list[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "eqsat_opt.proving.describe", *where]
    paths = {"PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(command, cwd=tmp_path, env=paths, capture_output=True, text=True)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("python -m eqsat_opt.proving.describe: error: ")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# docs/own-rules.md -------------------------------------------------------------------------------


def _blocks(language_name: str) -> list[str]:
    page = OWN_RULES.read_text(encoding="utf-8")
    return re.findall(rf"^```{language_name}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


def _words(text: str) -> str:
    """Without line breaks, which depend on the terminal."""
    return " ".join(text.split())


@pytest.fixture
def rulebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the page."""
    monkeypatch.setenv("EQSAT_OPT_CACHE", str(tmp_path / "cache"))
    (code,) = _blocks("python")
    path = tmp_path / "my_rules.py"
    path.write_text(code, encoding="utf-8")
    return path


def test_the_rulebook_of_the_page_passes_the_gate(
    rulebook: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["rules", "import", str(rulebook), "--jobs", "1", "--write"]) == 0
    printed = _words(capsys.readouterr().out)
    accepted, *_ = _blocks("text")
    for line in accepted.splitlines():
        assert _words(line.removesuffix("…")) in printed
    assert rulebook.with_name("my_rules.certificates.json").is_file()
    loaded = load_rules(str(rulebook), Numerics.BITEXACT)  # a named file is used whole
    assert [one.name for one in loaded] == re.findall(r"^mine/[\w-]+", accepted, re.MULTILINE)
    kept = list((rulebook.parent / "cache" / "certificates").glob("*.json"))
    assert len(kept) == len(loaded)


def test_what_the_page_says_of_proofs_is_printed(
    rulebook: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("z3", reason="proofs need z3: pip install 'eqsat-opt[verify]'")
    assert run(["rules", "import", str(rulebook), "--jobs", "1", "--level", "2"]) == 0
    printed = _words(capsys.readouterr().out)
    _, _, proven, *_ = _blocks("text")
    for line in proven.splitlines():
        assert _words(line.removesuffix("…")) in printed


def test_the_wrong_rule_of_the_page_is_refused(
    rulebook: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = "        i + 1 == x.rank,\n"
    code = rulebook.read_text(encoding="utf-8")
    assert code.count(needed) == 1
    rulebook.write_text(code.replace(needed, ""), encoding="utf-8")
    assert run(["rules", "import", str(rulebook), "--jobs", "1"]) == 1
    printed = _words(capsys.readouterr().out)
    _, refused, *_ = _blocks("text")
    for part in refused.split("…"):
        assert _words(part) in printed


def test_what_the_page_names_can_be_imported() -> None:
    table = OWN_RULES.read_text(encoding="utf-8").split("| to write |")[1].split("\n\n")[0]
    cells = " ".join(row.split("|")[1] for row in table.splitlines() if row.startswith("| `"))
    called = set(re.findall(r"(?<![\w.])(\w+)\(", cells)) - {"f"}
    named = called | set(re.findall(r": ([A-Z]\w+)", cells))
    assert named >= {"concat", "near", "sqrt", "Tensor", "Func"}
    assert named <= set(language.__all__)
    assert set(re.findall(r"ops\.(\w+)", cells)) <= set(OPS)
