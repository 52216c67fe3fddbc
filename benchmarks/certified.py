"""Certificates of the zoo's results: are they made and confirmed, how fast, and with which bound?

    python -m benchmarks.certified [NAME…] [--scale tiny] [--limit S] [--folder FOLDER]

Each model of the zoo, or each one named, is searched without measurements, and what is better than
the original is certified from the files. A line tells the seconds in which a certificate was made,
the CPU seconds of its check, the class, and the gap of the bound that was checked beside the one
that the solver claims. The exit code is 1 if a result
has no certificate, one is refused, or its check takes longer than the limit.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import onnx

from benchmarks.rows import examined
from eqsat_opt.api import run
from eqsat_opt.errors import EqsatError
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.certificates.confirming import certify
from eqsat_opt.pipeline.options import Options
from eqsat_opt.racing.entrants import ORIGINAL

__all__ = ["certified"]

_SEARCH = Options(measure=False, race=False, check=0, threads=1, store="", budget_s=90.0)


def certified(model: str, folder: Path, limit_s: float) -> tuple[str, bool]:
    """Search and certify a model; return a line of figures, and whether nothing is amiss.

    Args:
        model: name of a model of the zoo.
        folder: gets the model, its result and the certificate.
        limit_s: limit on the CPU seconds of the check.
    """
    given, fast, path = (folder / name for name in ("given.onnx", "fast.onnx", "cert.json"))
    onnx.save(zoo.build_named(model), given)
    report = run(given, replace(_SEARCH, certificate=str(path)), output=str(fast)).report
    if report.winner == ORIGINAL:
        return f"{model}  the original stays", True
    if not path.exists():
        return f"{model}  {'; '.join(one for one in report.notes if 'certificate' in one)}", False
    begin = time.process_time()
    try:
        found = certify(str(given), str(fast), str(path))
    except EqsatError as error:
        return f"{model}  REFUSED: {error}", False
    took_s = time.process_time() - begin
    bound = found.bound
    cells = (
        model,
        f"made in {report.stages_s['certificate']:.2f} s",
        f"confirmed in {took_s:.2f} CPU s",
        found.numerics,
        f"{sum(found.rules.values())} steps",
        f"{found.compared} compared",
        "no bound"
        if bound is None
        else f"gap {bound.gap:.2%} checked, {bound.claimed_gap:.2%} claimed",
    )
    return "  ".join(cells), took_s <= limit_s


def main() -> int:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--scale", choices=("full", "tiny"), default="full")
    parser.add_argument(
        "--limit", type=float, default=10.0, metavar="S", help="CPU seconds of a check"
    )
    parser.add_argument("--folder", type=Path, help="folder that keeps the files")
    arguments = parser.parse_args()
    suffix = "@tiny" if arguments.scale == "tiny" else ""
    models = [f"{name}{suffix}" for name in arguments.names or zoo.names()]
    examine = partial(certified, limit_s=arguments.limit)
    return 0 if examined(models, arguments.folder, examine) else 1


if __name__ == "__main__":
    sys.exit(main())
