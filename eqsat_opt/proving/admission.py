"""Admission of rules from outside the book, which are first verified on this machine.

A certificate file beside a rulebook is only a claim. It is compared with the result of verification
on this machine, now or earlier (see `certificates.cache.kept`), and a file that claims more is
refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from eqsat_opt.errors import CertificateError, RuleError, RuleRefuted
from eqsat_opt.proving.certificates.cache import keep, kept
from eqsat_opt.proving.certificates.certificate import (
    Certificate,
    certificate_command,
    read_certificates,
    why_invalid,
)
from eqsat_opt.proving.certificates.semantics import fingerprint
from eqsat_opt.rules.rule import Rule

__all__ = ["admit", "check_claims", "claims_beside", "contradiction"]

_PROVEN = 2
_SLACK = 4
"""Factor by which measurements and instance counts may differ from machine to machine."""


def admit(rules: Sequence[Rule], beside: Path | None = None) -> str:
    """Verify rules, and refuse those that are wrong or cannot be verified.

    Args:
        rules: rules from outside the book.
        beside: certificate file that came with them, if any.

    Returns:
        A warning about that file for the user; empty if there is none.

    Raises:
        RuleRefuted: a rule is wrong or could not be verified.
        CertificateError: the file is damaged, or claims what verification does not confirm.
    """
    claims = claims_beside(beside, rules) if beside is not None else {}
    earned = [_earned(rule, _claimed_level(rule, claims.get(rule.name))) for rule in rules]
    return check_claims(beside, claims, rules, earned) if beside is not None else ""


def claims_beside(beside: Path, rules: Sequence[Rule]) -> dict[str, Certificate]:
    """Return the certificates that a file claims for the rules it came with.

    Raises:
        CertificateError: the file is damaged, or names a rule that is not among ``rules``.
    """
    claims = read_certificates(beside)
    foreign = sorted(claims.keys() - {rule.name for rule in rules})
    if foreign:
        raise _refusal(beside, foreign[0], "which the rulebook does not define")
    return claims


def check_claims(
    beside: Path,
    claims: Mapping[str, Certificate],
    rules: Sequence[Rule],
    earned: Sequence[Certificate],
) -> str:
    """Compare the certificates that a file claims with those that the rules have earned.

    Returns:
        A line about rules without a valid certificate in the file; empty if every rule has one, or
        if there is no file.

    Raises:
        CertificateError: the file claims more than was earned.
    """
    stale = []
    for rule, found in zip(rules, earned, strict=True):
        claim = claims.get(rule.name)
        if claim is None or _is_stale(rule, claim):
            stale.append(rule.name)
        elif why_invalid(rule, claim):
            why = f"which claims level {claim.level} with the fingerprint of another level"
            raise _refusal(beside, rule.name, why)
        elif why := contradiction(claim, found):
            raise _refusal(beside, rule.name, why)
    if not stale or not (claims or beside.exists()):
        return ""
    others = f" and {len(stale) - 1} more" if len(stale) > 1 else ""
    return (
        f"{beside} has no valid certificate of {stale[0]}{others}: the rule or the verifier has "
        f"changed; verified again, {certificate_command(beside)} keeps that"
    )


def _is_stale(rule: Rule, claim: Certificate) -> bool:
    """Return whether a claim is below level 1, or is of another rule, operator or verifier."""
    marks = {fingerprint(rule, level) for level in (1, _PROVEN)}
    return claim.level < 1 or (None not in marks and claim.fingerprint not in marks)


def _refusal(beside: Path, name: str, why: str) -> CertificateError:
    return CertificateError(
        f"{beside} is refused: it has a certificate of {name}, {why}; "
        f"write it again with {certificate_command(beside)}"
    )


def contradiction(claim: Certificate, earned: Certificate) -> str:
    """Return the first claim of a certificate that goes beyond what was earned here.

    Levels, methods and tolerances are compared as they are. Measured errors and instance counts may
    differ a little between machines, so a claim of these is false only where it is far too good.

    Returns:
        The contradiction as a clause; empty if there is none.
    """
    if claim.level > earned.level:
        return f"which claims level {claim.level} where verification gives {earned.level}"
    if claim.axioms:
        return "which claims a derivation; only rules of the book are derived"
    if claim.level == earned.level and claim.scope != earned.scope:
        return "which claims another scope than was proven"
    if claim.tolerance != earned.tolerance:
        return f"which claims tolerance {claim.tolerance:g} where it is {earned.tolerance:g}"
    if [(d.rule, d.method) for d in claim.directions] != [
        (d.rule, d.method) for d in earned.directions
    ]:
        return "which claims other directions or methods than were used"
    if earned.level == 1 and claim.instances > _SLACK * earned.instances:
        return f"which claims {claim.instances} instances where there are {earned.instances}"
    for one in ("float32", "float16"):
        error, measured = getattr(claim, one), getattr(earned, one)
        if error * _SLACK < measured:
            return f"which claims a {one} error of {error:g} where {measured:g} is measured"
    return ""


def _claimed_level(rule: Rule, claim: Certificate | None) -> int:
    """Return the level to verify: 2 if a claim of a proof has a current fingerprint, else 1."""
    is_proof = claim is not None and claim.level >= _PROVEN and not why_invalid(rule, claim)
    return _PROVEN if is_proof else 1


def _earned(rule: Rule, level: int) -> Certificate:
    """Return the certificate that a rule earns here, up to a level.

    Raises:
        RuleRefuted: the rule is wrong or could not be verified.
        RuleError: a proof needs z3, which is not installed.
    """
    found = kept(rule, level)
    if found is not None:
        return found
    if level == 1:
        found = _exact(rule)
    else:
        from eqsat_opt.proving.proof import prove

        found = _earned(rule, 1)
        try:
            proof = prove(rule)
        except RuleError as error:
            raise RuleError(f"the certificate of {rule.name} claims a proof: {error}") from error
        if proof.status != "proven":
            return replace(found, unproven=proof.reason)
        found = found.raised(rule, _PROVEN, proof.scope)
    keep(rule, found)
    return found


def _exact(rule: Rule) -> Certificate:
    from eqsat_opt.proving.gate import certify_exact

    certificate = certify_exact(rule)
    if certificate.level < 1:
        raise RuleRefuted(
            f"rule {rule.name} holds in floating point, but no exact method confirms it; "
            "spell it with functions whose properties the verifier knows"
        )
    return certificate
