"""Pages of the site from outside this folder, and the links to them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_ROOT = Path(__file__).parents[1]
_PAGES = {
    "README.md": "start.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
_PUBLIC = ("eqsat_opt.api", "eqsat_opt.pipeline.options", "eqsat_opt.errors", "eqsat_opt.torch")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the repository's root, and the reference of what is public."""
    for source, page in _PAGES.items():
        text = (_ROOT / source).read_text(encoding="utf-8")
        text = re.sub(r"\]\(docs/", "](", text)
        text = re.sub(r"\]\(LICENSE\)", "](https://www.apache.org/licenses/LICENSE-2.0)", text)
        files.append(File.generated(config, page, content=_linked(text, "")))
    reference = "\n\n".join(("# Python", *(f"::: {name}" for name in _PUBLIC)))
    files.append(File.generated(config, "reference.md", content=reference))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to files of the root lead to their pages."""
    return _linked(markdown.replace("[`action.yml`](../action.yml)", "`action.yml`"), "../")


def _linked(text: str, folder: str) -> str:
    for source, page in _PAGES.items():
        text = text.replace(f"]({folder}{source}", f"]({page}")
    return text
