"""Certificates that come with a rulebook are claims, and those in the cache are the user's own."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from eqsat_opt.cli.app import run
from eqsat_opt.errors import CertificateError, RuleError, RuleRefuted
from eqsat_opt.lab import zoo
from eqsat_opt.proving import admission, gate
from eqsat_opt.proving.certificates import cache as kept
from eqsat_opt.proving.certificates import plain
from eqsat_opt.proving.certificates.certificate import (
    Certificate,
    certificates_beside,
    write_certificates,
)
from eqsat_opt.proving.certificates.semantics import fingerprint
from eqsat_opt.proving.gate import certify_exact
from eqsat_opt.proving.proof import prove
from eqsat_opt.proving.selection import load_rules, notes_on_rules
from eqsat_opt.rules import Numerics
from eqsat_opt.rules.rulebooks import read_rulebook

HEAD = "from eqsat_opt.rules import *\n"
RIGHT = """
@rule("mine/relu")
def once(x: Tensor):
    return ops.Relu(ops.Relu(x)), ops.Relu(x)
"""
WRONG = RIGHT.replace("ops.Relu(x)\n", "x\n")
UNPROVEN = """
@rule("mine/floor")
def floors(x: Tensor):
    return ops.Floor(ops.Floor(x)), ops.Floor(x)
"""
_VERIFIED: dict[str, Certificate] = {}


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EQSAT_OPT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """What `mine/relu` earns."""
    path = tmp_path_factory.mktemp("genuine") / "mine.py"
    path.write_text(HEAD + RIGHT)
    return certify_exact(read_rulebook(path)[0])


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch, genuine: Certificate) -> list[str]:
    """The rules that were verified, each at a cost only once in all tests."""
    seen: list[str] = []
    known = {genuine.fingerprint: genuine, **_VERIFIED}

    def noted(rule: Any, **_options: Any) -> Certificate:
        seen.append(rule.name)
        earned = known.get(fingerprint(rule) or "") or certify_exact(rule)
        _VERIFIED[earned.fingerprint] = earned
        return earned

    monkeypatch.setattr(gate, "certify_exact", noted)
    return seen


@pytest.fixture
def book(tmp_path: Path) -> Callable[..., Path]:
    """A rulebook with what lies beside it: certificates as they are, or any text."""

    def written(text: str, *claims: Certificate, raw: str | bytes | None = None) -> Path:
        path = tmp_path / "mine.py"
        path.write_text(HEAD + text)
        if claims:
            write_certificates(certificates_beside(path), claims)
        if raw is not None:
            data = raw.encode() if isinstance(raw, str) else raw
            certificates_beside(path).write_bytes(data)
        return path

    return written


def load(path: Path) -> list[str]:
    return [one.name for one in load_rules(str(path), Numerics.RELAXED)]


def refusal(path: Path) -> str:
    with pytest.raises(CertificateError) as caught:
        load(path)
    text = str(caught.value)
    assert text.isprintable()
    assert text.endswith(f"eqsat-opt rules import {path} --write")
    return text


# Claims ------------------------------------------------------------------------------------------


def test_a_genuine_certificate_is_no_trouble(
    book: Callable[..., Path], genuine: Certificate, verified: list[str]
) -> None:
    path = book(RIGHT, genuine)
    assert load(path) == ["mine/relu"]
    assert verified == ["mine/relu"]  # it was verified all the same
    assert notes_on_rules() == ()


def forged(path: Path, genuine: Certificate) -> Certificate:
    """What anybody can compute for whatever rule there is."""
    (rule,) = read_rulebook(path)
    return genuine.raised(rule, 2, "all sizes, elements of any type; any rank of x")


def test_a_forged_certificate_admits_no_wrong_rule(
    book: Callable[..., Path], genuine: Certificate
) -> None:
    path = book(WRONG)
    book(WRONG, forged(path, genuine))
    with pytest.raises(RuleRefuted, match="mine/relu is wrong"):
        load(path)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"level": 2}, "claims level 2 with the fingerprint of another level"),
        ({"axioms": ("matmul/assoc",)}, "claims a derivation"),
        ({"scope": "all sizes over the real numbers"}, "claims another scope than was proven"),
        ({"tolerance": 1e-6}, "claims tolerance 1e-06 where it is 0"),
        ({"directions": ()}, "claims other directions or methods"),
        ("method", "claims other directions or methods"),
        ("instances", "claims 999999 instances where there are"),
    ],
    ids=str,
)
def test_a_claim_beyond_what_is_earned(
    change: dict[str, Any] | str,
    why: str,
    book: Callable[..., Path],
    genuine: Certificate,
    verified: list[str],
) -> None:
    if isinstance(change, str):
        value: Any = {"method": "divination", "instances": 999999}[change]
        change = {"directions": (replace(genuine.directions[0], **{change: value}),)}
    text = refusal(book(RIGHT, replace(genuine, **change)))
    assert (
        f"mine.certificates.json is refused: it has a certificate of mine/relu, which {why}" in text
    )


def test_an_error_that_is_far_too_small(genuine: Certificate) -> None:
    earned = replace(genuine, float32=1e-6)
    assert admission.contradiction(replace(earned, float32=8e-7), earned) == ""
    why = admission.contradiction(replace(earned, float32=1e-8), earned)
    assert why == "which claims a float32 error of 1e-08 where 1e-06 is measured"


def test_a_claim_of_a_proof_is_proven_again(
    book: Callable[..., Path], genuine: Certificate, verified: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path = book(RIGHT)
    (rule,) = read_rulebook(path)
    derived = genuine.raised(rule, 3, "derived", axioms=("mine/relu",))
    assert "claims level 3 where verification gives 2" in refusal(book(RIGHT, derived))
    verified.clear()
    shutil.rmtree(os.environ["EQSAT_OPT_CACHE"])
    book(RIGHT, genuine.raised(rule, 2, "all sizes, and all else"))
    assert "claims another scope than was proven" in refusal(path)
    verified.clear()
    shutil.rmtree(os.environ["EQSAT_OPT_CACHE"])
    book(RIGHT, genuine.raised(rule, 2, prove(rule).scope))
    assert load(path) == load(path) == ["mine/relu"]
    assert verified == ["mine/relu"]  # and kept
    from eqsat_opt.proving import proof

    def unknown(_rule: Any) -> proof.Proof:
        return proof.Proof("unknown", "no proof", "", 0, 0.0)

    monkeypatch.setattr(proof, "prove", unknown)
    shutil.rmtree(os.environ["EQSAT_OPT_CACHE"])
    assert "claims level 2 where verification gives 1" in refusal(path)

    def missing(_rule: Any) -> proof.Proof:
        raise RuleError("proofs need z3; install it with: pip install 'eqsat-opt[verify]'")

    monkeypatch.setattr(proof, "prove", missing)
    with pytest.raises(RuleError, match="mine/relu claims a proof: proofs need z3; install it"):
        load(path)


@pytest.mark.parametrize(
    "change",
    [
        RIGHT.replace("ops.Relu", "ops.Sign"),
        RIGHT.replace('"mine/relu"', '"mine/relu", numerics=Numerics.RELAXED'),
        RIGHT.replace('"mine/relu"', '"mine/relu", bidirectional=True'),
        RIGHT.replace("ops.Relu(x)\n", "ops.Relu(x), x.rank == 2\n"),
    ],
    ids=["rule", "class", "direction", "condition"],
)
def test_a_stale_certificate_is_verified_again_and_said_so(
    change: str, book: Callable[..., Path], genuine: Certificate, verified: list[str]
) -> None:
    path = book(change, genuine)
    assert load(path) == ["mine/relu"]
    assert verified == ["mine/relu"]
    (note,) = notes_on_rules()
    assert note.isprintable()
    assert "has no valid certificate of mine/relu: the rule or the verifier has changed" in note
    assert note.endswith(f"eqsat-opt rules import {path} --write keeps that")
    load_rules("none", Numerics.RELAXED)
    assert notes_on_rules() == ()


def test_a_rule_without_a_certificate_is_named(
    book: Callable[..., Path], genuine: Certificate, verified: list[str]
) -> None:
    path = book(RIGHT + UNPROVEN, genuine)
    assert load(path) == ["mine/relu", "mine/floor"]
    assert "no valid certificate of mine/floor:" in notes_on_rules()[0]
    certificates_beside(path).write_text('{"format": 1, "certificates": []}')
    load(path)
    assert "no valid certificate of mine/relu and 1 more:" in notes_on_rules()[0]
    certificates_beside(path).unlink()
    load(path)
    assert notes_on_rules() == ()


def with_value(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    def changed(data: dict[str, Any]) -> Any:
        data["certificates"][0][key] = value
        return data

    return changed


def with_direction(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    def changed(data: dict[str, Any]) -> Any:
        data["certificates"][0]["directions"][0][key] = value
        return data

    return changed


DAMAGES: list[tuple[str, Callable[[dict[str, Any]], Any], str]] = [
    ("edited", with_value("level", 2), "was edited by hand: its digest does not fit"),
    ("of another rule", with_value("rule", "mine/other"), "was edited by hand"),
    ("unknown key", with_value("trusted", True), "has an unknown key 'trusted'"),
    ("missing key", lambda d: d["certificates"][0].pop("level") and d, "lacks the key 'level'"),
    ("unknown key below", with_direction("seen", 1), "a direction has an unknown key 'seen'"),
    ("level as text", with_value("level", "2"), "level of a certificate is '2'"),
    ("level as truth", with_value("level", True), "level of a certificate is True"),
    ("no such level", with_value("level", 4), "there is no level 4"),
    ("negative level", with_value("level", -1), "level of a certificate is -1"),
    ("huge level", with_value("level", 10**4000), "level of a certificate is 1000"),
    ("NaN", with_value("float32", float("nan")), "NaN is not a number"),
    ("infinity", with_value("float32", float("-inf")), "-Infinity is not a number"),
    ("name of two lines", with_value("rule", "mine/relu\nerror"), "certificate is 'mine/relu\\ne"),
    ("no name", with_value("rule", ["mine/relu"]), "rule of a certificate is"),
    ("count as float", with_direction("instances", 1.5), "instances of a direction is 1.5"),
    ("no directions", with_value("directions", {}), "directions of a certificate is {}"),
    ("no direction", with_value("directions", [3]), "a direction is not an object"),
    ("twice", lambda d: {**d, "certificates": 2 * d["certificates"]}, "2 certificates of"),
    ("no certificate", lambda d: {**d, "certificates": [3]}, "a certificate is not an object"),
    ("no list", lambda d: {**d, "certificates": "all"}, "lists no certificates"),
    ("format to come", lambda d: {**d, "format": 99}, "not of format 2"),
    ("format as truth", lambda d: {**d, "format": True}, "not of format 2"),
    ("no format", lambda d: d["certificates"], "not of format 2"),
]  # fmt: skip


def raw_of(genuine: Certificate) -> dict[str, Any]:
    return {"format": 2, "certificates": [json.loads(json.dumps(asdict(genuine)))]}


@pytest.mark.parametrize(("change", "why"), [d[1:] for d in DAMAGES], ids=[d[0] for d in DAMAGES])
def test_damaged_claims(
    change: Callable[[dict[str, Any]], Any],
    why: str,
    book: Callable[..., Path],
    genuine: Certificate,
    verified: list[str],
) -> None:
    assert why in refusal(book(RIGHT, raw=json.dumps(change(raw_of(genuine)))))
    assert not verified  # nothing is done for a file that is damaged


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"\xff\xfe", "codec can't decode"),
        (b"\x00", "Expecting value"),
        (b"[" * 200_000, "recursion"),
        (b'{"a":' * 200_000, "recursion"),
        (b'{"format": 2, "certificates": [{"float32": 1e999}]}', "lacks the key"),
        (b'{"format": ' + b"9" * 5000 + b"}", "Exceeds the limit"),
        (b'{"format": 2, "certificates": [' + b" " * (1 << 26) + b"]}", "larger than 64 MiB"),
    ],
    ids=lambda value: str(value[:20]),
)
def test_what_is_no_file_of_certificates(
    raw: bytes, why: str, book: Callable[..., Path], verified: list[str]
) -> None:
    assert why in refusal(book(RIGHT, raw=raw))
    assert not verified


def test_every_truncation_is_refused(book: Callable[..., Path], genuine: Certificate) -> None:
    whole = json.dumps(raw_of(genuine)).encode()
    for length in range(0, len(whole), 37):
        assert "is not a file of certificates" in refusal(book(RIGHT, raw=whole[:length]))


def test_infinite_number(book: Callable[..., Path], genuine: Certificate) -> None:
    text = json.dumps(raw_of(genuine)).replace('"tolerance": 0.0', '"tolerance": 1e999')
    assert "tolerance of a certificate is inf" in refusal(book(RIGHT, raw=text))


def test_a_certificate_of_a_rule_that_is_not_there(
    book: Callable[..., Path], genuine: Certificate, verified: list[str]
) -> None:
    path = book(RIGHT, genuine, replace(genuine, rule="mine/other"))
    assert "a certificate of mine/other, which the rulebook does not define" in refusal(path)


def test_a_certificate_under_the_name_of_another(
    book: Callable[..., Path], genuine: Certificate, verified: list[str]
) -> None:
    """Renamed and sealed anew, it is stale for the rule whose name it bears."""
    path = book(UNPROVEN, replace(genuine, rule="mine/floor"))
    assert load(path) == verified == ["mine/floor"]
    assert "no valid certificate of mine/floor" in notes_on_rules()[0]


def _folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("put", "why"),
    [
        (_folder, "Is a directory"),
        (os.mkfifo, "it is not an ordinary file"),
        (lambda path: path.symlink_to("/dev/zero"), "it is not an ordinary file"),
        (lambda path: path.symlink_to(path.name), "Too many levels"),
    ],
    ids=["folder", "pipe", "device", "loop"],
)
def test_what_is_no_file(
    put: Callable[[Path], None], why: str, book: Callable[..., Path], verified: list[str]
) -> None:
    path = book(RIGHT)
    put(certificates_beside(path))
    assert why in refusal(path)


def test_what_may_not_be_read(
    book: Callable[..., Path], genuine: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: str, _flags: int) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    path = book(RIGHT, genuine)
    monkeypatch.setattr(plain, "_opened", denied)  # root may read everything
    assert "Permission denied" in refusal(path)


# The command line --------------------------------------------------------------------------------


def error_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(arguments) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_every_command_refuses_a_forged_certificate(
    book: Callable[..., Path], genuine: Certificate, verified: list[str], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    model = tmp_path / "model.onnx"
    model.write_bytes(zoo.build("lora", scale="tiny").SerializeToString())
    damaged = replace(genuine, directions=())
    path = str(book(RIGHT, damaged))
    commands = [
        ["optimize", str(model), "--rules", path, "-o", str(tmp_path / "out.onnx")],
        ["explain", str(model), "--rules", f"default,{path}"],
        ["rules", "import", path, "--jobs", "1"],
    ]
    for command in commands:
        assert "claims other directions or methods" in error_of(capsys, *command)
    certificates_beside(Path(path)).write_text("{")
    for command in commands:
        assert "is not a file of certificates" in error_of(capsys, *command)
    assert not (tmp_path / "out.onnx").exists()
    # What the message says to do helps.
    assert run(["rules", "import", path, "--jobs", "1", "--write", "--quiet"]) == 0
    assert run(["rules", "import", path, "--jobs", "1"]) == 0
    assert load(Path(path)) == ["mine/relu"]
    assert capsys.readouterr().err == ""


def test_what_import_verified_is_kept(
    book: Callable[..., Path], verified: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = book(RIGHT)
    assert run(["rules", "import", str(path), "--jobs", "1"]) == 0
    assert load(path) == verified == ["mine/relu"]


def test_import_of_what_is_stale(
    book: Callable[..., Path], genuine: Certificate, capsys: pytest.CaptureFixture[str]
) -> None:
    path = book(RIGHT, replace(genuine, fingerprint="0" * 32))
    assert run(["rules", "import", str(path), "--jobs", "1"]) == 0
    captured = capsys.readouterr()
    assert "1 of 1 rule accepted" in captured.out
    assert captured.err.startswith("note: ")
    assert "no valid certificate of mine/relu" in captured.err
    assert run(["rules", "import", str(path), "--jobs", "1", "--quiet"]) == 0
    assert capsys.readouterr() == ("", captured.err)


def test_import_with_proofs(book: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = book(RIGHT)
    command = ["rules", "import", str(path), "--jobs", "1"]
    assert run([*command, "--level", "2", "--write"]) == 0
    assert "accepted: level 2" in capsys.readouterr().out
    assert load(path) == ["mine/relu"]
    assert notes_on_rules() == ()
    assert run(command) == 0  # a claim of a proof is proven again
    assert "accepted: level 2" in capsys.readouterr().out
    assert "--level 3 does not exist; give 1 or 2" in error_of(capsys, *command, "--level", "3")


# The cache ---------------------------------------------------------------------------------------


def entries(cache_folder: Path) -> list[Path]:
    return sorted((cache_folder / "certificates").glob("*.json"))


def test_a_rulebook_passes_the_gate_once(
    book: Callable[..., Path], cache_folder: Path, verified: list[str]
) -> None:
    path = book(RIGHT)
    assert load(path) == load(path) == verified == ["mine/relu"]
    assert len(entries(cache_folder)) == 1
    key = cache_folder / "certificates" / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert b"mine/relu" not in key.read_bytes()


Spoil = Callable[[Path, Path, Path], None]
"""Given the entry of `mine/relu`, that of `mine/floor`, and the key."""


def _edit(entry: Path, _other: Path, _key: Path) -> None:
    entry.write_text(entry.read_text().replace('"level": 1', '"level": 2'))


def _reseal(entry: Path, _other: Path, _key: Path) -> None:
    data = json.loads(entry.read_text())
    data["certificate"]["digest"] = "0" * 32
    entry.write_text(json.dumps({**data, "seal": "0" * 64}))


def _rename(entry: Path, other: Path, _key: Path) -> None:
    entry.write_bytes(other.read_bytes())


def _truncate(entry: Path, _other: Path, _key: Path) -> None:
    entry.write_bytes(entry.read_bytes()[:200])


def _nonsense(entry: Path, _other: Path, _key: Path) -> None:
    entry.write_text("[" * 100_000)


def _no_seal(entry: Path, _other: Path, _key: Path) -> None:
    entry.write_text(json.dumps({"certificate": json.loads(entry.read_text())["certificate"]}))


def _lose_key(_entry: Path, _other: Path, key: Path) -> None:
    key.unlink()


def _foreign_key(_entry: Path, _other: Path, key: Path) -> None:
    key.write_bytes(b"k" * 32)


def _copied_key(_entry: Path, _other: Path, key: Path) -> None:
    copy = key.with_name("copy")
    shutil.copy2(key, copy)
    copy.replace(key)


def _short_key(_entry: Path, _other: Path, key: Path) -> None:
    key.write_bytes(b"")


@pytest.mark.parametrize(
    "spoil",
    [
        _edit, _reseal, _rename, _truncate, _nonsense, _no_seal, _lose_key, _foreign_key,
        _copied_key, _short_key,
    ],
)  # fmt: skip
def test_an_entry_that_is_not_ours_is_verified_again(
    spoil: Spoil, book: Callable[..., Path], cache_folder: Path, verified: list[str]
) -> None:
    load(book(UNPROVEN))
    (other,) = entries(cache_folder)
    path = book(RIGHT)
    load(path)
    (entry,) = set(entries(cache_folder)) - {other}
    verified.clear()
    load(path)
    assert not verified
    spoil(entry, other, cache_folder / "certificates" / "key")
    load(path)
    assert verified == ["mine/relu"]
    load(path)
    assert verified == ["mine/relu"]  # and it is kept again


def test_a_folder_of_others_is_not_used(
    book: Callable[..., Path], cache_folder: Path, verified: list[str],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    path = book(RIGHT)
    load(path)
    shutil.copytree(cache_folder, tmp_path / "copy")
    monkeypatch.setenv("EQSAT_OPT_CACHE", str(tmp_path / "copy"))
    load(path)
    assert verified == ["mine/relu", "mine/relu"]
    # A key that others can read seals nothing.
    (tmp_path / "copy" / "certificates" / "key").chmod(0o644)
    load(path)
    load(path)
    assert len(verified) == 4


@pytest.mark.parametrize("library", ["numpy", "z3-solver"])
def test_other_libraries_verify_again(
    library: str, book: Callable[..., Path], verified: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = book(RIGHT)
    load(path)
    real = kept._version
    monkeypatch.setattr(kept, "_version", lambda name: "99" if name == library else real(name))
    kept._versions.cache_clear()
    load(path)
    kept._versions.cache_clear()
    assert verified == ["mine/relu", "mine/relu"]


def test_without_a_place_nothing_is_kept(
    book: Callable[..., Path], verified: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = book(RIGHT)
    monkeypatch.setenv("EQSAT_OPT_CACHE", str(path))  # a file
    assert load(path) == ["mine/relu"]
    folder = tmp_path / "cache" / "certificates"
    (folder / "key").mkdir(parents=True)
    monkeypatch.setenv("EQSAT_OPT_CACHE", str(tmp_path / "cache"))
    assert load(path) == load(path) == ["mine/relu"]
    assert len(verified) == 3
