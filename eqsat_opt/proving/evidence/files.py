"""The evidence of proofs in a folder: for each rule a trace, claims in SMT-LIB, and statements."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from eqsat_opt.checking.folder import CLAIMS, CONTENTS, CONTENTS_FORMAT, TRACE
from eqsat_opt.common.files import write_whole
from eqsat_opt.errors import CertificateError
from eqsat_opt.proving.certificates.semantics import rule_text
from eqsat_opt.proving.describe import describe
from eqsat_opt.proving.evidence.lean import theorems
from eqsat_opt.proving.evidence.smt_lib import scripts
from eqsat_opt.proving.evidence.trace import trace_of
from eqsat_opt.proving.proof.record import Record
from eqsat_opt.rules.rule import Rule

__all__ = ["Emission", "write_contents", "write_evidence"]


@dataclass(frozen=True)
class Emission:
    """Evidence to write of each proof, and its folder.

    Attributes:
        folder: an existing folder.
        lean: whether statements in Lean 4 are written as well.
    """

    folder: str
    lean: bool = False


def write_evidence(rule: Rule, record: Record, emission: Emission) -> None:
    """Write what the proof of a rule rests on.

    Raises:
        CertificateError: a file cannot be written.
    """
    path = Path(emission.folder, *rule.name.split("/"))
    path.parent.mkdir(parents=True, exist_ok=True)
    trace = trace_of(record, {"rule": rule.name, "text": rule_text(rule)})

    def write(suffix: str, text: str) -> None:
        write_whole(path.with_name(path.name + suffix), text, CertificateError)

    write(TRACE, json.dumps(trace, ensure_ascii=False, separators=(",", ":")) + "\n")
    write(CLAIMS, scripts(record.questions, rule.name))
    if emission.lean:
        write(".lean", theorems(trace, rule.name, describe(rule)))


def write_contents(rules: Iterable[str], folder: str) -> None:
    """Write the list of the rules whose evidence a folder holds.

    Raises:
        CertificateError: the file cannot be written.
    """
    data = {"format": CONTENTS_FORMAT, "rules": sorted(rules)}
    write_whole(Path(folder, CONTENTS), json.dumps(data, indent=1) + "\n", CertificateError)
