"""Evidence of proofs: real traces are accepted, changed ones refused; cvc5 confirms z3's claims."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from eqsat_opt.checking.folder import check_rule, rules_in
from eqsat_opt.checking.replay import Refused, replay
from eqsat_opt.checking.smt import claims_in, confirm
from eqsat_opt.cli.app import run
from eqsat_opt.errors import CertificateError
from eqsat_opt.proving.certificates.semantics import rule_text
from eqsat_opt.rules.library import named_rules

pytest.importorskip("z3", reason="proofs need z3: pip install 'eqsat-opt[verify]'")
pytest.importorskip("cvc5", reason="claims need cvc5: pip install 'eqsat-opt[verify]'")

RULES = ["conv/merge-siblings", "matmul/block-sum", "elementwise/gate", "softmax/deferred"]


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The evidence of a few rules."""
    from eqsat_opt.proving.evidence.files import Emission, write_contents, write_evidence
    from eqsat_opt.proving.proof import prove
    from eqsat_opt.proving.proof.record import Record

    folder = tmp_path_factory.mktemp("evidence")
    for name in RULES:
        record = Record()
        (rule,) = named_rules(name)
        assert prove(rule, record=record).status == "proven"
        write_evidence(rule, record, Emission(str(folder), lean=True))
    write_contents(RULES, str(folder))
    return folder


def trace_in(folder: Path, rule: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / f"{rule}.trace.json").read_text())
    return data


@pytest.mark.parametrize("rule", RULES)
def test_evidence_is_accepted(evidence: Path, rule: str) -> None:
    assert rule in rules_in(str(evidence))
    found = check_rule(str(evidence), rule, text_of(rule))
    assert not found.refused
    assert found.replayed.claims
    assert found.replayed.untried == 0


def text_of(rule: str) -> str:
    return rule_text(*named_rules(rule))


def test_a_trace_of_another_rule_is_refused(evidence: Path, tmp_path: Path) -> None:
    own, other = RULES[:2]
    shutil.copytree(evidence, tmp_path, dirs_exist_ok=True)
    trace = trace_in(evidence, other)
    (tmp_path / f"{own}.trace.json").write_text(json.dumps(trace))
    assert "the trace is of" in check_rule(str(tmp_path), own, text_of(own)).refused[own]
    (tmp_path / f"{own}.trace.json").write_text(json.dumps(trace | {"rule": own}))
    assert "another equation" in check_rule(str(tmp_path), own, text_of(own)).refused[own]


# Changed traces ----------------------------------------------------------------------------------


def changed(nodes: list[Any], place: int, draw: random.Random) -> int | None:
    """Append a copy of a sum with one part changed; ``None`` where there is nothing to change."""
    match nodes[place]:
        case ["plus", *parts] if parts:
            i = draw.randrange(len(parts))
            new = changed(nodes, parts[i], draw)
            node = ["plus", *parts[:i], *([] if new is None else [new]), *parts[i + 1 :]]
        case ["sum", bound, where, body]:
            new = changed(nodes, body, draw)
            node = ["sum", bound, where, new]
        case ["times", number, *factors]:
            if factors and draw.random() < 0.5:
                i = draw.randrange(len(factors))
                node = ["times", number, *factors[:i], *factors[i + 1 :]]
            else:
                new = changed(nodes, number, draw)
                node = ["times", new, *factors]
        case ["constant", over, under]:
            node = ["constant", over + draw.choice((-2, 1, 3)) * under, under]
        case _:
            return None
    nodes.append(node)
    return len(nodes) - 1


def forged(trace: dict[str, Any], draw: random.Random) -> dict[str, Any] | None:
    """Return a trace of which one step claims another result; ``None`` if that is not possible."""
    new: dict[str, Any] = json.loads(json.dumps(trace))
    nodes = new["nodes"]
    kind = draw.choice(("sums", "sides", "steps"))
    if kind == "sums":
        claim = draw.choice(new["vanishing"])
        place: tuple[list[Any], int] = claim["sums"], draw.randrange(len(claim["sums"]))
    elif kind == "sides":  # a part of it may lie where nothing counts, so one is added
        sums = draw.choice(new["statements"])["sums"]
        one, i = len(nodes), draw.randrange(2)
        nodes += [["constant", draw.randint(1, 9), 1], ["plus", *nodes[sums[i]][1:], one]]
        sums[i] = one + 1
        return new
    elif new["steps"]:
        place = draw.choice(new["steps"]), draw.choice((2, 3))
    else:
        return None
    holder, i = place
    replacement = changed(nodes, holder[i], draw)
    if replacement is None or nodes[replacement] == nodes[holder[i]]:
        return None
    holder[i] = replacement
    return new


def test_changed_steps_are_refused(evidence: Path) -> None:
    draw = random.Random(5)
    traces = [trace_in(evidence, rule) for rule in RULES]
    for trace in traces:  # a short trace is as good a target
        trace["statements"] = trace["statements"][:1]
    tried, accepted = 0, []
    while tried < 200:
        new = forged(draw.choice(traces), draw)
        if new is None:
            continue
        tried += 1
        try:
            replay(new, seed=1)
            accepted.append(new["rule"])
        except Refused:
            pass
    assert not accepted


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda t: t["vanishing"].clear(), "root 0 is not shown"),
        (lambda t: t["statements"].clear(), "states nothing"),
        (lambda t: t.update(format="else"), "format"),
        (lambda t: t["nodes"].insert(0, ["plus", 5]), "does not stand before it"),
        (lambda t: t["vanishing"][0].update(ending="by magic"), "not known"),
        (lambda t: t["vanishing"][0]["sums"].pop(), "not empty"),
        (lambda t: t["vanishing"][0].update(rest=[[[], 0]]), "not shown"),
        (lambda t: t["vanishing"][0].update(rest=[[[], None]]), "said not to occur"),
    ],
)
def test_forged_reasons_are_refused(evidence: Path, change: Any, why: str) -> None:
    trace = trace_in(evidence, "conv/merge-siblings")
    change(trace)
    with pytest.raises(Refused, match=why):
        replay(trace)


# Claims and files --------------------------------------------------------------------------------


def test_a_false_claim_is_not_confirmed() -> None:
    head = "(set-logic QF_LIA)\n(declare-const a Int)\n"
    claims = [f"{head}(assert {one})\n(check-sat)\n" for one in ("(> a 0)", "(distinct a a)")]
    found = confirm(claims_in("(reset)\n".join(claims)))
    assert found.unsat == 1
    assert [answer for _, answer in found.others] == ["sat"]


def test_a_claim_that_no_solver_reads() -> None:
    found = confirm(["(assert (> a 0))\n(check-sat)\n"])
    assert found.others[0][1].startswith("refused: ")


def test_missing_evidence(evidence: Path, tmp_path: Path) -> None:
    assert "cannot be read" in check_rule(str(tmp_path), RULES[0], "").refused[RULES[0]]
    with pytest.raises(CertificateError, match="rules verify --emit"):
        rules_in(str(tmp_path))


def test_statements_in_lean(evidence: Path) -> None:
    text = (evidence / "matmul/block-sum.lean").read_text()
    statements = trace_in(evidence, "matmul/block-sum")["statements"]
    assert text.count("theorem ") == text.count("sorry") == len(statements)
    assert "∑ " in text


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "evidence")
    verify = ["rules", "verify", "elementwise/add-commute", "--level", "2", "-q", "--jobs", "1"]
    assert run([*verify, "--emit", folder]) == 0
    assert run(["rules", "check", folder, "--jobs", "1"]) == 0
    assert "1 rule, 0 refused" in capsys.readouterr().out
    trace = Path(folder, "elementwise/add-commute.trace.json")
    trace.write_text(trace.read_text().replace('"rule":', '"rules":'))
    assert run(["rules", "check", folder, "--jobs", "1", "--json", "-"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["refused"]
    assert captured.err.startswith("error: the evidence of elementwise/add-commute is refused")
    assert run(["rules", "verify", "--lean"]) == 1
    assert "--emit" in capsys.readouterr().err
