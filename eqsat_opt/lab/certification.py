"""Certification of rules: the levels of verification, one on top of the other, in parallel.

Level 1 evaluates a rule exactly at small instances and refutes wrong rules. Level 2 proves it for
all sizes. Level 3 derives unproven rules from proven ones. Derivations run in the e-graph, so this
module is layered above `rules`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from eqsat_opt.errors import RuleError, RuleRefuted
from eqsat_opt.proving.certificates.certificate import Certificate, why_invalid, write_certificates
from eqsat_opt.proving.certificates.foundations import write_manifest
from eqsat_opt.proving.evidence.files import Emission, write_evidence
from eqsat_opt.proving.selection import book_certificates, certificate_path
from eqsat_opt.rules.library import families
from eqsat_opt.rules.rule import Phase, Rule, directed

__all__ = ["LEVELS", "RuleOutcome", "SerialExecutor", "verify", "write_book"]

LEVELS = (1, 2, 3)
_PROOF_LIMIT_S = 3.0
"""Limit of the work per scenario of a proof, in seconds of an idle core."""
T = TypeVar("T")
Progress = Callable[[int, int, str], None]
"""Called with the number of finished steps, of all steps so far, and the finished step."""


@dataclass(frozen=True)
class RuleOutcome:
    """The outcome of verifying one rule.

    Attributes:
        rule: the rule, as given.
        certificate: the certificate that it earned; ``None`` if it was refuted.
        error: the refutation; ``None`` if there is none.
        notes: remarks on proofs that could not be redone.
        time_s: seconds of work, over all levels.
    """

    rule: Rule
    certificate: Certificate | None
    error: RuleRefuted | None
    notes: tuple[str, ...]
    time_s: float

    @property
    def passed(self) -> bool:
        """Whether the rule may be used."""
        return self.certificate is not None and self.certificate.level >= 1


class SerialExecutor(Executor):
    """An executor that runs each call at once, in the calling thread."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Run ``fn`` now and return its finished future."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


# Work of a worker process: arguments and results are plain data ---------------------------------


def _exact(rule: Rule, thorough: bool) -> tuple[Certificate | None, RuleRefuted | None, float]:
    from eqsat_opt.proving.gate import BRIEF_POINTS, THOROUGH_POINTS, certify_exact

    start = time.perf_counter()
    points = THOROUGH_POINTS if thorough else BRIEF_POINTS
    try:
        certificate = certify_exact(rule, max_points=points)
        return certificate, None, time.perf_counter() - start
    except RuleRefuted as error:
        return None, error, time.perf_counter() - start


def _prove(rule: Rule, emission: Emission | None = None) -> tuple[str, str, str, float]:
    """Return status, scope, reason and seconds; the status is ``missing`` without z3."""
    from eqsat_opt.proving.proof.record import Record

    start = time.perf_counter()
    record = Record() if emission is not None else None
    try:
        from eqsat_opt.proving.proof import prove

        proof = prove(rule, time_limit_s=_PROOF_LIMIT_S, record=record)
        if emission is not None and record is not None and proof.status == "proven":
            write_evidence(rule, record, emission)
    except (ImportError, RuleError) as error:
        return "missing", "", str(error), time.perf_counter() - start
    return proof.status, proof.scope, proof.reason, proof.time_s


def _derive(rule: Rule, axioms: Sequence[Rule]) -> tuple[tuple[str, ...] | None, str, float]:
    """Return the axioms used (``None`` if underivable), the scope and the seconds."""
    from eqsat_opt.egraph.derivation.derive import derive

    start = time.perf_counter()
    used: dict[str, None] = {}
    instances = 0
    usable = [a for a in axioms if a.name != rule.name and a.phase is not Phase.SIBLINGS]
    for one in directed([rule]):
        try:
            found = derive(one, usable)
        except RuleError:  # an operator that the e-graph cannot hold in a pattern
            found = None
        if found is None:
            return None, "", time.perf_counter() - start
        used.update(dict.fromkeys(found.axioms))
        instances += len(found.instances)
    text = f"derived at {instances} generic typings from {', '.join(used)}"
    return tuple(used), text, time.perf_counter() - start


# The levels -------------------------------------------------------------------------------------


class _Steps:
    """A runner of one function on many rules, which reports progress."""

    def __init__(self, executor: Executor, progress: Progress | None) -> None:
        self._executor = executor
        self._progress = progress
        self._done = self._all = 0

    def __call__(self, what: str, calls: Mapping[str, tuple[Callable[..., T], tuple[Any, ...]]]
                 ) -> dict[str, T]:  # fmt: skip
        self._all += len(calls)
        futures = {self._executor.submit(f, *args): name for name, (f, args) in calls.items()}
        results: dict[str, T] = {}
        try:
            for future in as_completed(futures):
                name = futures[future]
                results[name] = future.result()
                self._done += 1
                if self._progress is not None:
                    self._progress(self._done, self._all, f"{what} {name}")
        finally:
            for future in futures:
                future.cancel()
        return results


def verify(
    rules: Iterable[Rule],
    *,
    level: int = 3,
    executor: Executor | None = None,
    progress: Progress | None = None,
    known: Mapping[str, Certificate] | None = None,
    axioms: Sequence[Rule] | None = None,
    emission: Emission | None = None,
) -> list[RuleOutcome]:
    """Verify rules up to a level.

    Args:
        rules: the rules to verify, with distinct names.
        level: 1, 2 or 3.
        executor: any executor of `concurrent.futures`; by default the work runs in this thread.
        progress: called after each step.
        known: earlier certificates; their proofs count where z3 is missing or the level is 1.
        axioms: rules that level 3 may use; by default the given rules that reached level 2.
        emission: where to write what proofs rest on; by default nothing is written.

    Returns:
        One outcome per rule, in the order given.
    """
    rules = list(rules)
    known = known or {}
    steps = _Steps(executor or SerialExecutor(), progress)
    thorough = {rule.name for rule in rules if not _may_be_proven(rule, level, known)}
    # The slowest rules start first, so that no worker is left with a slow one at the end.
    longest_first = sorted(rules, key=lambda rule: rule.name not in thorough)
    exact = steps("checked", {r.name: (_exact, (r, r.name in thorough)) for r in longest_first})
    times = {name: taken for name, (_, _, taken) in exact.items()}
    errors = {name: error for name, (_, error, _) in exact.items()}
    notes: dict[str, list[str]] = {rule.name: [] for rule in rules}
    certificates = {name: one for name, (one, _, _) in exact.items() if one is not None}
    sound = [rule for rule in rules if rule.name in certificates]
    if level >= 2:
        _to_level_2(sound, certificates, steps, times, notes=notes, emission=emission)
    if level == 1 or any(notes.values()):
        _keep_proofs(sound, certificates, known, notes)
    rest = [rule for rule in sound if rule.name not in thorough]
    _look_harder(rest, certificates, errors, steps, times=times)
    sound = [rule for rule in sound if rule.name in certificates]
    if level >= 3:
        proven = [r for r in sound if certificates[r.name].level == 2] if axioms is None else axioms
        _to_level_3(sound, certificates, proven, steps, times=times)
    return [
        RuleOutcome(
            rule=rule, certificate=certificates.get(rule.name), error=errors[rule.name],
            notes=tuple(notes[rule.name]),
            time_s=times[rule.name],
        )
        for rule in rules
    ]  # fmt: skip


def _to_level_2(
    rules: Sequence[Rule],
    certificates: dict[str, Certificate],
    steps: _Steps,
    times: dict[str, float],
    notes: dict[str, list[str]],
    emission: Emission | None,
) -> None:
    tried = [rule for rule in rules if certificates[rule.name].level >= 1]
    by_name = {rule.name: rule for rule in tried}
    found = steps("proved", {rule.name: (_prove, (rule, emission)) for rule in tried})
    for name, (status, scope, reason, taken) in found.items():
        times[name] += taken
        if status == "missing":
            notes[name].append(reason)
        elif status == "proven":
            rule = by_name[name]
            certificates[name] = certificates[name].raised(rule, 2, scope=scope)
        else:
            certificates[name] = replace(certificates[name], unproven=reason).sealed()


def _may_be_proven(rule: Rule, level: int, known: Mapping[str, Certificate]) -> bool:
    """Return whether a proof is likely, so that a few instances are enough."""
    before = known.get(rule.name)
    if before is None or why_invalid(rule, before):
        return level >= 2
    return before.level >= 2


def _look_harder(
    rules: Sequence[Rule],
    certificates: dict[str, Certificate],
    errors: dict[str, RuleRefuted | None],
    steps: _Steps,
    times: dict[str, float],
) -> None:
    """Evaluate rules without a proof at many more instances, which are their only evidence."""
    unproven = [rule for rule in rules if certificates[rule.name].level == 1]
    found = steps("checked", {rule.name: (_exact, (rule, True)) for rule in unproven})
    for name, (certificate, error, taken) in found.items():
        times[name] += taken
        if certificate is None:
            del certificates[name]
            errors[name] = error
        else:
            reason = certificates[name].unproven
            certificates[name] = replace(certificate, unproven=reason).sealed()


def _keep_proofs(
    rules: Sequence[Rule],
    certificates: dict[str, Certificate],
    known: Mapping[str, Certificate],
    notes: dict[str, list[str]],
) -> None:
    """Keep levels that were reached before and are not tried now, if nothing has changed."""
    for rule in rules:
        before, now = known.get(rule.name), certificates[rule.name]
        if before is None or before.level <= 1 or why_invalid(rule, before) or now.level < 1:
            continue
        if now.level == 1:
            certificates[rule.name] = now.raised(
                rule, before.level, before.scope, before.unproven, axioms=before.axioms
            )
            notes[rule.name].append(f"level {before.level} as certified before, not redone")


def _to_level_3(
    rules: Sequence[Rule],
    certificates: dict[str, Certificate],
    axioms: Sequence[Rule],
    steps: _Steps,
    times: dict[str, float],
) -> None:
    open_ = [rule for rule in rules if certificates[rule.name].level == 1]
    by_name = {rule.name: rule for rule in open_}
    found = steps("derived", {rule.name: (_derive, (rule, axioms)) for rule in open_})
    for name, (used, scope, taken) in found.items():
        times[name] += taken
        if used is not None:
            certificates[name] = certificates[name].raised(
                by_name[name], 3, scope, certificates[name].unproven, axioms=used
            )


def write_book(outcomes: Iterable[RuleOutcome]) -> list[str]:
    """Write the certificates of the book's rules beside the book.

    In a file that is written, rules without an outcome keep their earlier certificates. The
    manifest, with digests of what certificates rest on, is rewritten beside them.

    Returns:
        The files of certificates that were written.

    Raises:
        CertificateError: a file cannot be written.
    """
    earned = {one.rule.name: one.certificate for one in outcomes}
    written = []
    for family, rules in families().items():
        if not any(rule.name in earned for rule in rules):
            continue
        before = book_certificates(family, strict=False)
        kept = {rule.name: earned.get(rule.name, before.get(rule.name)) for rule in rules}
        path = certificate_path(family)
        write_certificates(path, [one for one in kept.values() if one is not None])
        written.append(str(path))
    if written:
        write_manifest(Path(written[0]).parent)
    return written
