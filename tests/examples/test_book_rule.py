"""A rule of the book is one function; a command writes its certificate and the manifest."""

from __future__ import annotations

import hashlib

import pytest

from tests.examples.house import House

BOOK = "eqsat_opt/rules/books/elementwise"
END = "    return ops.Exp(x) * ops.Exp(y), ops.Exp(x + y)\n"
RULE = '''

@rule("elementwise/abs-of-difference")
def abs_of_difference(x: Tensor, y: Tensor) -> Sides:
    """A distance is the same from either end; unsigned numbers would wrap."""
    return ops.Abs(x - y), ops.Abs(y - x), is_float(x)
'''
NAME = "elementwise/abs-of-difference"

IS_ON = f"""
from eqsat_opt.proving.selection import default_rules, excluded_rules
print({NAME!r} in [rule.name for rule in default_rules()], sorted(excluded_rules()))
"""


def contents(house: House) -> dict[str, str]:
    files = (file for file in house.path.rglob("*") if file.is_file())
    return {
        str(file.relative_to(house.path)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if "__pycache__" not in file.parts
    }


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    return House.copied_to(tmp_path_factory.mktemp("house"))


def test_a_rule_is_one_function_and_a_certificate(house: House) -> None:
    before = contents(house)
    house.with_edits({f"{BOOK}.py": (END, END + RULE)})
    alone = house.run("-c", IS_ON)
    assert alone.stdout.split(maxsplit=1) == ["False", f"['{NAME}']\n"], alone.stderr

    done = house.run("-m", "eqsat_opt", "rules", "verify", NAME, "--write", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert "1 at level 2" in done.stdout
    assert house.run("-c", IS_ON).stdout == "True []\n"

    after = contents(house)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed - {"eqsat_opt/rules/books/sources.json"} == {f"{BOOK}.py", f"{BOOK}.json"}
    assert before.keys() == after.keys()


def test_a_wrong_one_gets_no_certificate(house: House) -> None:
    wrong = RULE.replace("abs-of-difference", "abs-of-sum").replace("x - y", "x + y")
    house.with_edits({f"{BOOK}.py": (END, END + wrong.replace("of_difference", "of_sum"))})
    done = house.run("-m", "eqsat_opt", "rules", "verify", "elementwise/abs-of-sum", "--write")
    assert done.returncode == 1
    assert "is wrong" in done.stderr
    assert "abs-of-sum" not in (house.path / f"{BOOK}.json").read_text()
