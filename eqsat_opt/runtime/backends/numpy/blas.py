"""The threads of the library that computes products for NumPy.

A launch of a plan runs on one thread, while OpenBLAS takes all cores of the machine by itself. It
is told so around each product and told otherwise again, since the rest of the process is not ours.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

__all__ = ["on_one_thread"]

_MAPS = Path("/proc/self/maps")
"""What a process of Linux has loaded; elsewhere threads stay as the user set them."""

_NAMES = tuple(
    (f"{prefix}openblas_get_num_threads{suffix}", f"{prefix}openblas_set_num_threads{suffix}")
    for prefix, suffix in product(("scipy_", ""), ("64_", "_64", ""))
)


@cache
def _libraries() -> tuple[tuple[Callable[[], int], Callable[[int], Any]], ...]:
    """What reads and sets the threads of each OpenBLAS of this process."""
    found = []
    for path in _loaded():
        try:
            library = ctypes.CDLL(path)
        except OSError:  # it was replaced on disk, say
            continue
        for names in _NAMES:
            if all(hasattr(library, name) for name in names):
                read, write = (getattr(library, name) for name in names)
                write.argtypes = (ctypes.c_int,)
                found.append((read, write))
                break
    return tuple(found)


def _loaded() -> list[str]:
    try:
        lines = _MAPS.read_text().splitlines()
    except OSError:
        return []
    paths = (line.split(maxsplit=5)[5] for line in lines if "openblas" in line)
    return list(dict.fromkeys(path for path in paths if path.startswith("/")))


_lock = threading.Lock()
_running = 0
_before: list[tuple[Callable[[int], Any], int]] = []


def on_one_thread(run: Callable[[], None]) -> None:
    """Run something with products on the calling thread alone; a few µs on top.

    The number of threads is one for the whole process. Where several threads of a plan compute
    products, the first of them sets it, and the last one that ends sets what was before.
    """
    global _running
    with _lock:
        if not _running:
            _before[:] = [(write, read()) for read, write in _libraries()]
            for write, _ in _before:
                write(1)
        _running += 1
    try:
        run()
    finally:
        with _lock:
            _running -= 1
            if not _running:
                for write, threads in _before:
                    write(threads)
