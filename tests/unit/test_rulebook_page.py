"""The page of the rulebook: its contents lead to every rule and count what is proven."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from eqsat_opt.rules import describe, families
from eqsat_opt.rules.library import standings


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
    assert links <= set(headings)
    assert {_anchor(name) for name in (*standings(), *families())} <= links


def test_contents_count_rules_by_level(monkeypatch: pytest.MonkeyPatch) -> None:
    known = dict(standings())
    (weak, gone, *rest) = (rule.name for rule in families()["matmul"])
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
