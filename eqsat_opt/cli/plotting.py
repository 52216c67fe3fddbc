"""Files of plots: the check of their names, and writing them whole or not at all."""

from __future__ import annotations

import io
from importlib.util import find_spec
from typing import TYPE_CHECKING

from eqsat_opt.common.files import write_whole
from eqsat_opt.errors import OptionError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["check_plot", "save_figure"]

_KINDS = (".png", ".svg", ".pdf")


def check_plot(path: str) -> None:
    """Check before any work that a plot can be drawn.

    Raises:
        OptionError: the extension of the name is no known format, or matplotlib is missing.
    """
    if not path.lower().endswith(_KINDS):
        raise OptionError(f"--plot cannot write {path}; end its name in {', '.join(_KINDS)}")
    if find_spec("matplotlib") is None:
        raise OptionError("--plot needs matplotlib; install eqsat-opt[plot]")


def save_figure(figure: Figure, path: str) -> None:
    """Write a figure in the format of the name's extension.

    Raises:
        OptionError: the file cannot be written; nothing is left behind.
    """
    data = io.BytesIO()
    figure.savefig(data, format=path.rpartition(".")[2].lower())
    write_whole(path, data.getvalue(), OptionError)
