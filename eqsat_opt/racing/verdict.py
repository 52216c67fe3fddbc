"""The verdict after a race: the graph that is written, and the gain that may be claimed of it.

Default sessions come first: a file is judged by how it runs in a default session of onnxruntime.

1. If graphs beat the original in a default session, the fastest is written (``improved``).
2. If none does, but one beats it with a session option and is not slower without, that one is
   written, with the option as advice in its metadata (``improved_with_option``). It has to beat the
   original with the same option as well, or the original is written with the advice.
3. If nothing wins at all, a result that was written before and won then stays, unless the race
   shows it slower than the original (``kept``); otherwise the original is written (``unchanged``).

In 1 and 2 a result that was written before also stays if it wins as well and the new one does not
beat it. A session option is advised only if the graph with it beats the same graph without. Whether
one graph beats another is always decided by the condition of the race, which has to hold at each
set of sizes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from eqsat_opt.racing.entrants import ORIGINAL
from eqsat_opt.racing.race_result import RaceResult

__all__ = ["PREVIOUS", "Status", "Verdict", "cheapest", "decide", "unraced"]

PREVIOUS = "previous"
"""The entrant that an earlier run wrote."""

Status: TypeAlias = Literal["improved", "improved_with_option", "kept", "unchanged", "unmeasured"]


@dataclass(frozen=True)
class Verdict:
    """The entrant that is written, and its gain.

    Attributes:
        winner: name of the entrant that is written, without a session option.
        status: the case, as listed at the module; ``unmeasured`` where there was no race.
        speedup: speedup of a default session, the least over all sizes; 1 where the race had to
            show a gain and did not.
        level: the graph optimisation level that is advised; empty for none.
        session_speedup: speedup of a session with the level over a default one of the original; 1
            without a level.
    """

    winner: str
    status: Status
    speedup: float = 1.0
    level: str = ""
    session_speedup: float = 1.0


def decide(races: Sequence[RaceResult], *, incumbent: str = "") -> Verdict:
    """Judge races of the same entrants, one at each set of sizes.

    Args:
        races: at least one; an entrant called ``name@level`` is ``name`` with a session
            option. An entrant that is missing from a race does not win.
        incumbent: the entrant that an earlier run wrote and that won then; empty for none.
    """
    original = races[0].original
    names = [
        name
        for name in races[0].entries
        if name != original and all(name in race.entries for race in races)
    ]

    def beats(name: str, rival: str) -> bool:
        return all(race.beats(name, rival) for race in races)

    def is_slower(name: str) -> bool:
        return any(race.loses(name) for race in races)

    def slowest(name: str) -> float:
        return max(race.entries[name].ratio for race in races)

    def gain(name: str) -> float:
        return 1.0 if name == original else 1.0 / slowest(name)

    winners = sorted((name for name in names if beats(name, original)), key=slowest)
    by_default = [name for name in winners if not _level(name)]
    with_option = [
        name
        for name in winners
        if _level(name)
        and beats(name, _plain(name))
        and (_plain(name) == original or not is_slower(_plain(name)))
    ]
    if by_default:
        winner = _first(by_default, incumbent, beats)
        status: Status = "improved"
    elif with_option:
        chosen = _first(with_option, incumbent, beats)
        same_option = f"{original}@{_level(chosen)}"
        if same_option in with_option and not beats(chosen, same_option):
            chosen = same_option
        winner, status = _plain(chosen), "improved_with_option"
    elif incumbent in names and not is_slower(incumbent):
        winner, status = incumbent, "kept"
    else:
        winner, status = original, "unchanged"
    advised = [name for name in with_option if _plain(name) == winner]
    return Verdict(
        winner=winner,
        status=status,
        speedup=gain(winner) if status == "improved" else 1.0,
        level=_level(advised[0]) if advised else "",
        session_speedup=gain(advised[0]) if advised else 1.0,
    )


def cheapest(races: Sequence[RaceResult], candidates: Sequence[str]) -> Verdict:
    """Return the verdict for the cheapest candidate, whatever its time.

    It is meant for users who minimise something other than time.

    Args:
        races: races as for `decide`.
        candidates: the cheapest first; the first that ran is taken.
    """
    for name in candidates:
        ratio = max(race.entries[name].ratio for race in races)
        if math.isfinite(ratio):
            return Verdict(name, "improved", 1.0 / ratio)
    return Verdict(races[0].original, "unchanged")


def unraced(winner: str) -> Verdict:
    """Return the verdict without a race, where only the predicted cost is known."""
    return Verdict(winner, "unchanged" if winner == ORIGINAL else "unmeasured")


def _first(winners: Sequence[str], incumbent: str, beats: Callable[[str, str], bool]) -> str:
    """Return the fastest winner, or an incumbent that wins too and is not beaten by the fastest."""
    stays = next((name for name in winners if incumbent and _plain(name) == incumbent), None)
    return winners[0] if stays is None or beats(winners[0], stays) else stays


def _plain(name: str) -> str:
    return name.partition("@")[0]


def _level(name: str) -> str:
    return name.partition("@")[2]
