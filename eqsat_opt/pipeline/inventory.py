"""An inventory of this machine: what can run a model here, and what is missing.

A missing item is no error, but a line with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from eqsat_opt.common.text import bytes_text, count_text, counted
from eqsat_opt.cost.store import ProfileStore
from eqsat_opt.errors import EqsatError
from eqsat_opt.runtime.backends.native.library import instructions, library_digest, missing
from eqsat_opt.runtime.backends.ort import NAME as ORT
from eqsat_opt.runtime.backends.registry import load_runtime, racing_runtimes, record_of
from eqsat_opt.runtime.processor import device_fingerprint, usable_cores

__all__ = ["Item", "inventory"]

_VECTORS = {"avx512f": "AVX-512", "avx2": "AVX2", "asimd": "NEON"}


@dataclass(frozen=True)
class Item:
    """One line of the inventory: the processor, a runtime, our kernels or the prices.

    Attributes:
        name: title of the line.
        text: description of the item, or why it is missing.
        is_here: whether the item can be used.
        facts: the same information as values.
    """

    name: str
    text: str
    is_here: bool = True
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)


def inventory(store: str | None = None) -> tuple[Item, ...]:
    """Return all items that may run here, the processor first.

    Args:
        store: path of the profile store; ``None`` for the user's own.
    """
    return (_processor(), *_runtimes(), _prices(store))


def _processor() -> Item:
    found, cores = device_fingerprint(), usable_cores()
    vectors = [name for flag, name in _VECTORS.items() if flag in found.isa]
    text = f"{found.name}, {counted(cores, 'core')}; {', '.join(vectors) or 'no vectors known'}"
    facts = {"id": found.id, "model": found.name, "cores": cores, "instructions": vectors}
    return Item("processor", text, facts=facts)


def _runtimes() -> Iterator[Item]:
    for name in racing_runtimes():
        title = record_of(name).title or name
        try:
            runtime = load_runtime(name)
            if why := runtime.missing():
                yield Item(title, why, is_here=False)
                continue
            facts = dict(runtime.facts())
            yield Item(title, ", ".join(map(str, facts.values())), facts=facts)
        except Exception as error:  # another package may raise anything
            yield Item(title, f"cannot be loaded: {error}", is_here=False)
        if name == ORT:
            yield _kernels()


def _kernels() -> Item:
    name = "own kernels"
    if why := missing():
        return Item(name, why, is_here=False)
    facts = {"instructions": instructions(), "library": library_digest()}
    return Item(name, f"compiled, with {instructions()}; library {library_digest()}", facts=facts)


def _prices(path: str | None) -> Item:
    name = "prices"
    try:
        store = ProfileStore(path)
        facts: dict[str, Any] = {"path": str(store.path), "kernels": 0, "threads": {}}
        if not Path(store.path).exists():
            return Item(name, f"none yet; {store.path} will keep them", is_here=False, facts=facts)
        try:
            device = device_fingerprint().id
            rows = [row for row in store.rows() if row.key.device == device]
        finally:
            store.close()
    except EqsatError as error:
        return Item(name, str(error), is_here=False)
    threads = Counter(row.key.threads for row in rows)
    shown = ", ".join(
        f"{count_text(count)} with {counted(number, 'thread')}"
        for number, count in sorted(threads.items())
    )
    size = bytes_text(Path(store.path).stat().st_size)
    text = f"{counted(len(rows), 'kernel')} of this processor{f' ({shown})' if shown else ''}"
    facts |= {"kernels": len(rows), "threads": {str(k): n for k, n in sorted(threads.items())}}
    return Item(name, f"{text} in {store.path}, {size}", facts=facts)
