"""The structure check finds circles, crowded folders and long modules, and none in the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.structure import MOST_LINES, MOST_MODULES_IN_A_FOLDER, REASON, breaches


def package(folder: Path, **modules: str) -> Path:
    """Write a package with some modules."""
    root = folder / "house"
    root.mkdir()
    for name, text in {"__init__": "", **modules}.items():
        (root / f"{name}.py").write_text(text)
    return root


@pytest.mark.slow  # CI runs the command itself
def test_the_package_has_the_shape_that_is_promised() -> None:
    assert list(breaches()) == []


@pytest.mark.parametrize("way", ["from house import b", "import house.b", "from house.b import x"])
def test_circles_are_found(way: str, tmp_path: Path) -> None:
    root = package(tmp_path, a=way, b="def f():\n    from house.a import y")
    (found,) = breaches(root)
    assert "house.a, house.b" in found


def test_an_import_for_types_is_no_circle(tmp_path: Path) -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import house.b"
    assert list(breaches(package(tmp_path, a=text, b="import house.a"))) == []


def test_long_modules_say_why(tmp_path: Path) -> None:
    text = "x = 1\n" * (MOST_LINES + 1)
    root = package(tmp_path, a=text, b=f'"""B.\n\n{REASON} it is.\n"""\n{text}')
    (found,) = breaches(root)
    assert "house.a" in found


def test_crowded_folders_are_found(tmp_path: Path) -> None:
    root = package(tmp_path)
    (root / "room").mkdir()
    for number in range(MOST_MODULES_IN_A_FOLDER + 1):
        (root / "room" / f"m{number}.py").write_text("")
    (found,) = breaches(root)
    assert "house/room: 21 modules" in found


def test_a_class_name_with_two_meanings_is_found(tmp_path: Path) -> None:
    text = "class Draft: ...\nclass _Own: ...\nclass Term: ..."
    (found,) = breaches(package(tmp_path, a=text, b=text))
    assert "Draft is a class of house.a, house.b" in found
