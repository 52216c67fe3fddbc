"""TensorRight's rules of XLA, from their source in Haskell.

A tensor of TensorRight has named axes, and an aggregated axis is in place of any number of them.
Here each aggregated axis is one axis, and axes lie in the order in which a rule introduces them, so
that a verdict is for these ranks. Sizes and positions are variables. Operators of XLA are said by
those of ONNX: a dot product by a sum of products, iota by a cumulative sum, a dynamic slice by a
slice at any position. Steps of slices that a rule leaves open are 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from eqsat_opt.errors import RuleError
from eqsat_opt.lab.imports.foreign import ForeignRule, Unsayable
from eqsat_opt.lab.imports.haskell import Definition, definitions
from eqsat_opt.lab.imports.tensorright_rule import Reader

__all__ = ["read_tensorright"]

_VERIFIED = re.compile(r"^\s+verify\w+(?: cvc5| \(.*\))? (\w+)$", re.MULTILINE)
"""The names of rules that a module verifies."""


def read_tensorright(path: Path) -> tuple[ForeignRule, ...]:
    """Read the rules of a module of Haskell, or of all `Main.hs` in a folder.

    Raises:
        RuleError: there is no such file, or it holds no rule.
    """
    files = sorted(path.rglob("Main.hs")) if path.is_dir() else [path]
    found: list[ForeignRule] = []
    for file in files:
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RuleError(f"{file} cannot be read: {error}; give TensorRight's rules") from error
        family = re.sub(r"[^a-z0-9]", "", file.parent.name.lower()) or "main"
        known = definitions(text)
        names = dict.fromkeys(_VERIFIED.findall(text))
        found += [
            _foreign(f"tensorright/{family}-{name.lower()}", known.get(name), known)
            for name in names
        ]
    if not found:
        raise RuleError(f"{path} has no rule of TensorRight; give a Main.hs or the folder of all")
    return tuple(found)


def _foreign(
    name: str, definition: Definition | None, known: Mapping[str, Definition]
) -> ForeignRule:
    reader = Reader(name, known)
    try:
        if definition is None:
            raise Unsayable("a definition of Haskell that is not in the file")
        reader.run(definition, {})
        return ForeignRule(name, reader.text or name, reader.stated())
    except (Unsayable, RuleError) as error:
        return ForeignRule(name, reader.text or _title(definition) or name, None, str(error))


def _title(definition: Definition | None) -> str:
    found = re.search(r'rewrite\s+"([^"]*)"', definition.text if definition else "")
    return found[1] if found else ""
