"""Rules that verification is tried on: planted errors, and right rules beside them.

Every test of a level of verification takes all of them. To plant a rule, define it in
:mod:`published` if it is on the list of known unsound rules, U1 to U17, otherwise in
:mod:`further`. The family in its name says what verification must find out: ``wrong``, or else
it is right.
"""

from __future__ import annotations

from eqsat_opt.rules import Rule
from tests.unit.planted_rules import further, published

__all__ = ["RIGHT", "WRONG", "further", "published"]

_ALL = [
    value
    for module in (published, further)
    for value in vars(module).values()
    if isinstance(value, Rule)
]
WRONG = [one for one in _ALL if one.family == "wrong"]
RIGHT = [one for one in _ALL if one.family != "wrong"]
