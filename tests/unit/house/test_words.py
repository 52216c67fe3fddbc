"""The check of words finds each kind of breach, and none in the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.words import PACKAGE, breaches, main


def found(folder: Path, source: str) -> list[tuple[int, str]]:
    path = folder / "module.py"
    path.write_text(source)
    return list(breaches(path))


@pytest.mark.slow  # CI runs the command itself
def test_the_package_reads_alone() -> None:
    assert main([str(PACKAGE)]) == 0


@pytest.mark.parametrize(
    ("source", "line", "why"),
    [
        ('def f():\n    """The price of a kernel."""', 2, "no verb first"),
        ('def f():\n    """Return it. What is left is 0."""', 2, "begins with What"),
        ('class A:\n    """Of a kernel."""', 2, "begins with Of"),
        ('"""As the other one."""', 1, "begins with As"),
        ('X = 1\n"""Who reads it."""', 2, "begins with Who"),
        ("x = 1  # it tells how long a run takes", 1, "tells how"),
        ("x = 1  # whoever asks", 1, "whoever"),
        ("x = 1  # so many times longer", 1, "so many times"),
        (
            'class A:\n    """A price.\n\n    Args:\n        x: what it is.\n    """',
            2,
            "no noun",
        ),
    ],
)
def test_breaches_are_found(tmp_path: Path, source: str, line: int, why: str) -> None:
    ((where, text),) = found(tmp_path, source)
    assert (where, why in text) == (line, True), text


@pytest.mark.parametrize(
    "source",
    [
        'def f():\n    """Return the price of a kernel, `As` it is called."""',
        'class A:\n    """A price.\n\n    What is it?\n    """',
        '@property\ndef f(self):\n    """The price of a kernel."""',
        '@rule("a/b")\ndef f():\n    """A product of products is one product."""',
        "x = 1  # prices tell kernels apart",
    ],
)
def test_sentences_that_read_alone_are_none(tmp_path: Path, source: str) -> None:
    assert found(tmp_path, source) == []


def test_a_breach_is_printed_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert found(tmp_path, '"""By the way."""')
    assert main([str(tmp_path)]) == 1
    assert "module.py:1" in capsys.readouterr().out


def test_a_missing_folder_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path / "none")])
    assert "give files or folders" in capsys.readouterr().err
