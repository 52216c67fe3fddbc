"""Optimise random models and compare outputs: `python -m benchmarks.random_graphs --examples 500`.

Runs the property tests of tests/property/test_optimise_random.py with as many examples as wanted,
and prints how many models were rewritten and which rules made a part of a graph that was run.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1] / "tests" / "property" / "test_optimise_random.py"


@dataclass(frozen=True)
class Examples:
    """A pytest plugin that makes the profile before hypothesis looks for it."""

    count: int

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self) -> None:
        """Register the profile ``counted``."""
        from hypothesis import HealthCheck, settings

        settings.register_profile(
            "counted",
            max_examples=self.count,
            database=None,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        )


def main(arguments: list[str] | None = None) -> int:
    """Run the examples; 0 if all models kept their outputs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=500, help="random models of each kind")
    parser.add_argument("--seed", type=int, default=0, help="another seed makes other models")
    chosen = parser.parse_args(arguments)
    options = ["-q", "-k", "keep_their_outputs", "--hypothesis-show-statistics"]
    options += ["--hypothesis-profile=counted", f"--hypothesis-seed={chosen.seed}"]
    return int(pytest.main([str(TESTS), *options], plugins=[Examples(chosen.examples)]))


if __name__ == "__main__":
    sys.exit(main())
