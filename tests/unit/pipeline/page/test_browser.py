"""A page in a browser without a window: no error, no request, links, sorting and keys work."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

WIDTHS = ((1280, "light"), (800, "dark"), (390, "dark"))
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    with driver.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.mark.parametrize(("width", "scheme"), WIDTHS)
def test_a_page_in_a_browser(
    width: int, scheme: str, browser: Any, explained: str, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    file.write_text(explained, encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("dialog", lambda dialog: told.append(dialog.message))
    page.on("request", lambda request: told.append(request.url))
    page.goto(file.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width

    for link in page.locator("a[href]").all():
        target = link.get_attribute("href")
        assert page.evaluate("id => !!document.getElementById(id)", target[1:])

    heads = page.locator("#kernels th")
    values = "rows => rows.map(row => Number(row.cells[4].dataset.value))"
    for order in ("descending", "ascending"):
        heads.nth(4).locator("button").press("Enter")
        assert heads.nth(4).get_attribute("aria-sort") == order
        times = page.locator("#kernels tbody tr").evaluate_all(values)
        assert times == sorted(times, reverse=order == "descending")

    after = page.locator(".pane[data-side=after] svg")
    made = after.locator(".node.new")
    assert made.count() == 2
    after.focus()
    box = after.get_attribute("viewBox")
    after.press("+")
    assert after.get_attribute("viewBox") != box
    after.press("0")
    after.press("n")
    after.locator(".node:focus").press("Enter")
    assert page.locator("#details dd").count() > 0
    made.first.dispatch_event("click")
    page.locator("#details a").first.click()
    assert page.url.endswith("#rule-matmul/assoc")
    page.locator("#rules a[data-rule]").first.click()
    assert after.locator(".node.lit").count() == 2
    assert told == [file.as_uri()]
    page.close()


def test_a_graph_without_operators(browser: Any, bare: str, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(bare, encoding="utf-8")
    page = browser.new_page()
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.goto(file.as_uri())
    graph = page.locator(".pane[data-side=after] svg")
    graph.focus()
    for key in ("+", "0", "n", "Enter"):
        page.keyboard.press(key)
    assert told == []
    page.close()
