"""The option `--html` of commands that search: its file is checked first, and written last."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import TYPE_CHECKING

from eqsat_opt.cli.session import check_writable, write_text
from eqsat_opt.errors import OptionError

if TYPE_CHECKING:
    from eqsat_opt.pipeline.report.explanation import Explanation
    from eqsat_opt.pipeline.run import Result

__all__ = ["check_page", "write_explanation_page", "write_result_page"]


def check_page(path: str | None, others: Iterable[str | None], model: str) -> None:
    """Check before any work that a page can be made and written; ``None`` asks for none.

    Args:
        path: the file of the page.
        others: files that the command writes besides; ``None`` and `-` are no files.
        model: the model, whose files are kept.

    Raises:
        OptionError: the file cannot be written, or jinja2 is not installed.
    """
    if path is None:
        return
    from eqsat_opt.api import files_of
    from eqsat_opt.pipeline.page.page import require_pages

    if path == "-":
        raise OptionError("--html writes a file; name one")
    taken = (one for one in others if one not in (None, "-"))
    check_writable(
        path, chain(filter(None, taken), files_of(model)), noun="another file of this run"
    )
    require_pages()


def write_result_page(result: Result, path: str | None) -> None:
    """Write the page of a run, if one is wanted.

    Raises:
        OptionError: the file cannot be written; nothing is left behind.
    """
    if path is not None:
        from eqsat_opt.pipeline.page.page import result_page

        write_text(result_page(result), path)


def write_explanation_page(explanation: Explanation, path: str | None) -> None:
    """Write the page of an explanation, if one is wanted.

    Raises:
        OptionError: the file cannot be written; nothing is left behind.
    """
    if path is not None:
        from eqsat_opt.pipeline.page.page import explanation_page

        write_text(explanation_page(explanation), path)
