"""Rules that verification is tried on: planted errors, and right rules beside them.

Every test of a level of verification takes all of them. To plant a rule, define it in
:mod:`published` if it is on the list of known unsound rules, U1 to U17, in :mod:`adversarial` if it
is wrong where a verifier might not look, otherwise in :mod:`further`. The family in its name says
what verification must find out: ``wrong``, ``refuted`` if only level 1 must, or else it is right.
"""

from __future__ import annotations

from eqsat_opt.rules import Rule
from tests.unit.planted_rules import adversarial, further, published

__all__ = ["REFUTED", "RIGHT", "WRONG", "adversarial", "further", "published"]

_ALL = [
    value
    for module in (published, further, adversarial)
    for value in vars(module).values()
    if isinstance(value, Rule)
]
WRONG = [one for one in _ALL if one.family == "wrong"]
REFUTED = [one for one in _ALL if one.family == "refuted"]
"""Wrong where real numbers end: at a pole, at integers, off the target of a tolerance."""
RIGHT = [one for one in _ALL if one.family not in ("wrong", "refuted")]
