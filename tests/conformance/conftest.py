"""The conformance suite is a command of `benchmarks/`; its tests run a sample of the same cases."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
