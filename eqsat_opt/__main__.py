"""`python -m eqsat_opt` is the command `eqsat-opt`."""

from __future__ import annotations

import sys

from eqsat_opt.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
