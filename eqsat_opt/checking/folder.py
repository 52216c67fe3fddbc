"""A folder of evidence, checked: each trace is replayed, and each claim is asked of cvc5."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from eqsat_opt.checking.replay import Refused, Replayed, replay
from eqsat_opt.checking.smt import Confirmed, claims_in, confirm
from eqsat_opt.errors import CertificateError, reason

__all__ = ["CLAIMS", "CONTENTS", "CONTENTS_FORMAT", "TRACE", "Checked", "check_rule", "rules_in"]

CONTENTS = "contents.json"
CONTENTS_FORMAT = "eqsat-opt evidence 1"
TRACE = ".trace.json"
CLAIMS = ".smt2"


@dataclass
class Checked:
    """The results of a check of some rules.

    Attributes:
        replayed: counts of the steps that were evaluated.
        claims: counts of cvc5's answers.
        refused: each rule that is refused, with the reason.
    """

    replayed: Replayed = field(default_factory=Replayed)
    claims: Confirmed = field(default_factory=Confirmed)
    refused: dict[str, str] = field(default_factory=dict)

    def add(self, other: Checked) -> None:
        """Add what the check of other rules found."""
        self.replayed = self.replayed + other.replayed
        self.claims.unsat += other.claims.unsat
        self.claims.others += other.claims.others
        self.refused.update(other.refused)


def rules_in(folder: str) -> list[str]:
    """Return the names of the rules whose evidence a folder should hold.

    Raises:
        CertificateError: the folder has no list of them.
    """
    try:
        data = json.loads(Path(folder, CONTENTS).read_bytes())
        if data["format"] == CONTENTS_FORMAT:
            return list(map(str, data["rules"]))
        why = f"is in the format {data['format']!r}"
    except (OSError, ValueError, LookupError, TypeError) as error:
        why = f"cannot be read ({reason(error)})"
    raise CertificateError(
        f"{CONTENTS} in {folder} {why}; write the evidence with: eqsat-opt rules verify --emit DIR"
    )


def check_rule(folder: str, rule: str, text: str, seed: int = 0) -> Checked:
    """Check the evidence of one rule.

    Args:
        folder: the folder of the evidence.
        rule: name of the rule.
        text: the rule with its conditions, which its trace must be about.
        seed: seed of the sizes and elements.

    Raises:
        RuleError: cvc5 is not installed.
    """
    found = Checked()
    path = Path(folder, *rule.split("/"))
    try:
        trace = json.loads(path.with_name(path.name + TRACE).read_bytes())
        claims = path.with_name(path.name + CLAIMS).read_text(encoding="utf-8")
        if trace.get("rule") != rule:
            raise Refused(f"the trace is of {trace.get('rule')!r}")
        if trace.get("text") != text:
            raise Refused("the trace is of another equation, or of another version of it")
        found.replayed = replay(trace, seed=seed)
    except (OSError, ValueError, AttributeError) as error:
        found.refused[rule] = f"its evidence cannot be read: {reason(error)}"
        return found
    except Refused as error:
        found.refused[rule] = str(error)
        return found
    found.claims = confirm(claims_in(claims))
    if found.claims.others:
        answer = found.claims.others[0][1]
        found.refused[rule] = (
            f"cvc5 does not confirm {len(found.claims.others)} of its claims; "
            f"the first answer is {answer!r}"
        )
    return found
