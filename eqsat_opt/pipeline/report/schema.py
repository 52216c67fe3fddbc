"""JSON Schemas of reports, as files beside this module.

A schema has a version, which every document gives as its ``format``. A change that readers notice
needs a new version, and a further field is one, as a schema allows no field that it does not name.
"""

from __future__ import annotations

from importlib.resources import files

from eqsat_opt.errors import OptionError, or_nearest

__all__ = ["REPORT_FORMAT", "SCHEMAS", "schema_text"]

REPORT_FORMAT = "eqsat-opt report 1"

SCHEMAS = ("report",)


def schema_text(name: str) -> str:
    """Return the text of a schema.

    Raises:
        OptionError: there is no schema of this name.
    """
    if name not in SCHEMAS:
        raise OptionError(f"there is no schema {name!r}; {or_nearest(name, SCHEMAS)}")
    return files(__package__).joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
