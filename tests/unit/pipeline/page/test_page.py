"""A page of HTML: complete, loaded from nothing, and safe from the names of a model."""

from __future__ import annotations

import builtins
import json
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import eqsat_opt
from eqsat_opt.cli import main
from eqsat_opt.cost.metrics import TIME
from eqsat_opt.cost.quotes import Quote
from eqsat_opt.cost.roofline import Roofline
from eqsat_opt.errors import OptionError
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.page import page as making
from eqsat_opt.pipeline.page.page import page_text, require_pages
from eqsat_opt.pipeline.report.explanation import Explanation
from eqsat_opt.pipeline.run import Result
from tests.unit.pipeline.page.conftest import EVIL

_VOID = {"meta", "link", "img", "br", "input"}


class Reader(HTMLParser):
    """Tags, attributes and texts of a page, with the tags that are still open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.handlers: list[str] = []
        self.loaded: list[str] = []
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        if tag not in _VOID:
            self.open.append(tag)
        for name, value in attrs:
            self.handlers += [name] * name.startswith("on")
            self.ids[value or ""] += name == "id"
            self.links += [value or ""] * (name == "href" and tag == "a")
            self.loaded += [f"{tag} {value}"] * (name == "src" or (name == "href" and tag != "a"))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)


@pytest.fixture(params=["explained", "unsearched"])
def text(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


def test_a_page_is_whole_and_loads_nothing(text: str) -> None:
    page = Reader(text)
    assert page.open == []
    assert page.loaded == page.handlers == []
    assert page.tags["img"] == 0
    assert "@import" not in text
    assert "url(" not in text
    assert len(text.encode()) < 2_000_000


def test_every_link_has_its_target(text: str) -> None:
    page = Reader(text)
    assert page.links
    assert all(link.startswith("#") and page.ids[link[1:]] == 1 for link in page.links)


def test_the_parts_of_a_search(explained: str, unsearched: str) -> None:
    page, plain = Reader(explained), Reader(unsearched)
    sections = {"summary", "race", "graphs", "kernels", "rules", "assumptions"}
    assert sections <= page.ids.keys()
    assert plain.ids.keys() & {"graphs", "kernels", "search"} == set()
    assert "rule-matmul/assoc" in page.ids


def test_both_graphs_say_what_changed(explained: str) -> None:
    (data,) = [one for one in Reader(explained).scripts if one.startswith("[{")]
    before, after = json.loads(data)
    kinds = [[node["kind"] for node in graph["nodes"]] for graph in (before, after)]
    assert kinds[0].count("gone") == 2
    assert kinds[1].count("new") == 2
    assert kinds[0].count("input") == kinds[1].count("input") == 3
    made = [node for node in after["nodes"] if node["kind"] == "new"]
    assert all(node["rules"] == ["matmul/assoc"] and node["time_us"] > 0 for node in made)
    assert any(EVIL in node["name"] for node in before["nodes"])
    assert len(before["edges"]) == 6


def test_without_jinja2_there_is_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name == "jinja2":
            raise ImportError(name)
        return load(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(OptionError, match=r"pip install 'eqsat-opt\[html\]'"):
        require_pages()


def test_a_result_shows_its_head(explanation: Explanation) -> None:
    result = Result(None, explanation.report)
    assert result.speedup == explanation.report.speedup
    assert repr(result) == f"<Result of {explanation.report}>"
    page = Reader(result._repr_html_())
    assert page.open == []
    assert page.tags["img"] == page.tags["script"] == 0
    assert page.tags["tr"] > 3


def test_progress_is_told() -> None:
    told: list[str] = []
    model = zoo.build_named("linear_attention@tiny")
    eqsat_opt.optimize(
        model, progress=lambda stage, _: told.append(stage), measure=False, race=False, store=""
    )
    assert [one for one in dict.fromkeys(told) if one in _SOME] == ["load", "saturate", "choose"]


_SOME = {"load", "saturate", "choose"}


def test_the_commands_write_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(making, "_MISSES_S", 600.0)  # a busy machine finds none in a second
    page, model = tmp_path / "page.html", tmp_path / "out.onnx"
    quiet = ["--no-measure", "--store", "", "-q", "--html", str(page)]
    line = ["optimize", "zoo:linear_attention@tiny", "--no-race", "-o", str(model), *quiet]
    assert main(line) == 0
    assert "near misses" in page.read_text(encoding="utf-8").lower()
    assert main(["explain", "zoo:linear_attention@tiny", *quiet]) == 0
    assert "why not" in page.read_text(encoding="utf-8")
    for wrong in ("-", str(model), str(tmp_path / "none" / "page.html")):
        assert main([*line[:-1], wrong]) == 1
    assert main(["explain", "zoo:linear_attention@tiny", "--stage", "graph", *quiet]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 4


def test_the_roofline_share_of_each_kernel(explanation: Explanation) -> None:
    """The product q k has 32,768 operations and 18,432 bytes: 18.4 µs at 1 GB/s."""
    proposal = explanation.proposal
    choice = proposal.choice
    prices = {one: Quote({TIME: 36.864}, "measured") for one in choice.prices}
    for peaks in (None, Roofline(flops_per_us=1e4, bytes_per_us=1e3)):
        seen = replace(proposal, choice=replace(choice, prices=prices, peaks=peaks))
        text = page_text(explanation.report, seen)
        assert ("at 10 GFLOP/s and 1 GB/s, which probes reached here" in text) == bool(peaks)
        assert ('<th class="n">roofline</th>' in text) == bool(peaks)
        assert (">50 %</span>" in text) == bool(peaks)
