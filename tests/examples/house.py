"""A copy of the package to add things to, and to run from the outside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

__all__ = ["Done", "House"]

_ROOT = Path(__file__).parents[2]
_IGNORED = shutil.ignore_patterns("*.pyc.*")
"""Compiled modules are copied too, but none that another process is just writing."""

_COMMANDS = """
import contextlib, io, json, sys
from eqsat_opt.cli import main

done = []
for line in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(line)
    done.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(done))
"""


class Done(NamedTuple):
    """What a command line came to."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class House:
    """The package and the operator grid in a folder of their own.

    Attributes:
        path: the folder.
    """

    path: Path

    @classmethod
    def unchanged(cls) -> House:
        """Where they are; nothing may be added there."""
        return cls(_ROOT)

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

    def commands(self, lines: Sequence[Sequence[str]]) -> list[Done]:
        """Several command lines, one after another in one process, which starts only once."""
        done = self.run("-c", _COMMANDS, json.dumps(lines))
        assert done.returncode == 0, done.stderr
        return [Done(*one) for one in json.loads(done.stdout)]
