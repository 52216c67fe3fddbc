"""The threads of the library that computes products for NumPy.

A launch of a plan runs on one thread, while OpenBLAS uses all cores of the machine by default. Its
number of threads is set to one around each product and restored afterwards, since the rest of the
process is not ours.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

__all__ = ["blas_libraries", "on_one_thread"]

_MAPS = Path("/proc/self/maps")
"""Linux's list of the libraries in a process; elsewhere threads stay as the user set them."""

_NAMES = tuple(
    (f"{prefix}openblas_get_num_threads{suffix}", f"{prefix}openblas_set_num_threads{suffix}")
    for prefix, suffix in product(("scipy_", ""), ("64_", "_64", ""))
)


@cache
def blas_libraries() -> tuple[tuple[Callable[[], int], Callable[[int], Any]], ...]:
    """Return functions that read and set the threads of each OpenBLAS in this process."""
    found = []
    for path in _loaded():
        try:
            library = ctypes.CDLL(path)
        except OSError:  # for example, it was replaced on disk
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
    """Run products on the calling thread alone; this adds a few µs.

    The number of threads is a setting of the whole process. If several threads of a plan compute
    products, the first of them sets it, and the last one to end restores it.
    """
    global _running
    with _lock:
        if not _running:
            _before[:] = [(write, read()) for read, write in blas_libraries()]
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
