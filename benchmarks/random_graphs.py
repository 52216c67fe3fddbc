"""Optimise random models and compare outputs: `python -m benchmarks.random_graphs --examples 500`.

Runs the property tests of tests/property/test_optimise_random.py with as many examples as wanted, and prints how many
models were rewritten and which rules made a part of a graph that was run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parents[1] / "tests" / "property" / "test_optimise_random.py"


def main(arguments: list[str] | None = None) -> int:
    """Run the examples; 0 if all models kept their outputs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=500, help="random models of each kind")
    parser.add_argument("--seed", type=int, help="other models than those of the seed 0")
    chosen = parser.parse_args(arguments)
    settings.register_profile(
        "counted",
        max_examples=chosen.examples,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    return int(
        pytest.main(
            [
                str(TESTS),
                "-q",
                "-k",
                "keep_their_outputs",
                "--hypothesis-profile=counted",
                f"--hypothesis-seed={chosen.seed or 0}",
                "--hypothesis-show-statistics",
            ]  # fmt: skip
        )
    )


if __name__ == "__main__":
    sys.exit(main())
