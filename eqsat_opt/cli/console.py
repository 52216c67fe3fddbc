"""The console of the command line, which never interprets names from files as markup."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from eqsat_opt.errors import escaped

__all__ = ["SafeConsole"]


_WIDTH = 80
"""Width where the environment gives none that is possible."""


class SafeConsole(Console):
    """A console for plain text, without markup and emoji, with control characters escaped."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, emoji=False, markup=False)
        if self.width < 1:  # COLUMNS=0, with which rich would print nothing
            self.width = _WIDTH

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render as rich does, with control characters in text escaped."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                lines = "\n".join(map(escaped, segment.text.split("\n")))
                yield Segment(lines, segment.style)
