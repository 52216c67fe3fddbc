"""A copy of the package to add things to, and to run from the outside."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["House"]

_ROOT = Path(__file__).parents[2]
_IGNORED = shutil.ignore_patterns("__pycache__")


@dataclass(frozen=True)
class House:
    """The package and the operator grid in a folder of their own.

    Attributes:
        path: the folder.
    """

    path: Path

    @classmethod
    def copied_to(cls, path: Path) -> House:
        """As they are."""
        for part in ("eqsat_opt", "tests/conformance"):
            shutil.copytree(_ROOT / part, path / part, ignore=_IGNORED)
        return cls(path)

    def with_edits(self, edits: Mapping[str, tuple[str, str]]) -> House:
        """With one place of each of these files replaced: file to what is there and what will be.

        Raises:
            ValueError: the place is not there, or not just once.
        """
        for name, (old, new) in edits.items():
            file = self.path / name
            text = file.read_text()
            if text.count(old) != 1:
                raise ValueError(f"{old!r} occurs {text.count(old)} times in {name}")
            file.write_text(text.replace(old, new))
        return self

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Python with these arguments, which finds this package and no other."""
        environment = {**os.environ, "PYTHONPATH": str(self.path)}
        return subprocess.run(
            [sys.executable, *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.path,
            env=environment,
        )
