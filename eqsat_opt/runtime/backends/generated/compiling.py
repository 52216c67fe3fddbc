"""The system's C++ compiler, and the cache folder of compiled libraries.

The name of a cached library is the digest of all its dependencies: its source, the headers, the
flags and the compiler. Its content is followed by the digest of that content, so a damaged file is
detected and compiled again. Files are written whole or not at all; processes that compile one at
the same time write the same file. The size of the folder is bounded: when a library is added, the
least recently used ones are removed.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path

from eqsat_opt.common.files import Scratch, write_whole
from eqsat_opt.common.paths import cache_folder
from eqsat_opt.errors import EqsatError, RuntimeFailed, printable
from eqsat_opt.runtime.backends.generated.host import HostKernel
from eqsat_opt.runtime.backends.generated.kernel import FloatKernel
from eqsat_opt.runtime.backends.generated.source import plan_source, source
from eqsat_opt.runtime.processor import device_fingerprint

__all__ = [
    "cached_library",
    "compiled",
    "compiled_for_plans",
    "compiler_missing",
    "instructions_here",
]

_COMPILERS = ("c++", "g++", "clang++")

_HEADERS = (
    Path(__file__).parent / "src" / "calls.h",
    Path(__file__).parent / "src" / "functions.h",
    Path(__file__).parent / "src" / "region.h",
    Path(__file__).parent / "src" / "typed.h",
    Path(__file__).parents[1] / "native" / "src" / "onnxruntime_abi.h",
)

# Without contraction sums and products are those of IEEE 754. Never -ffast-math: it makes the host
# process flush denormals to zero.
_FLAGS = (
    "-std=c++17", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math",
    "-fvisibility=hidden", "-shared", "-fPIC", "-w",
)  # fmt: skip

_INSTRUCTIONS: Mapping[str, tuple[str, ...]] = {
    "avx512": ("-march=x86-64-v4", "-mprefer-vector-width=512"),
    "avx2": ("-march=x86-64-v3",),
    "neon": (),
}

_LIMIT_S = 120.0

_MOST_BYTES = 256 << 20
"""Limit of the size of all libraries in the folder; one takes about 0.1 MB."""

_IN_USE_S = 3600.0
"""Time for which a library is kept after its last use, since it may be about to be loaded.

The file of a library that is loaded already may be removed.
"""

_DIGEST_BYTES = 32


@lru_cache(maxsize=4)
def _compiler(asked: str, _search: str) -> tuple[str, ...]:
    """Return the compiler's command, `CXX` if it is set; empty if there is no compiler."""
    if asked:
        try:
            command = tuple(shlex.split(asked))
        except ValueError:
            return ()
        return command if command and shutil.which(command[0]) else ()
    return next(((path,) for name in _COMPILERS if (path := shutil.which(name))), ())


def _command() -> tuple[str, ...]:
    return _compiler(os.environ.get("CXX", ""), os.environ.get("PATH", ""))


def compiler_missing() -> str:
    """Return why nothing can be compiled, as a sentence without a period; empty if it can."""
    if sys.platform == "win32":
        return "kernels are not generated on this system"
    if _command():
        return ""
    return "there is no C++ compiler for generated kernels; install one, or name it by CXX"


@cache
def _version(command: tuple[str, ...]) -> str:
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, check=False, timeout=_LIMIT_S
        )
        return done.stdout
    return ""


def compiled(kernels: Sequence[FloatKernel], instructions: str, limit_s: float = _LIMIT_S) -> str:
    """Return the path of a library of some kernels, from the user's cache folder or compiled.

    Args:
        kernels: kernels in any order; duplicates are allowed.
        instructions: instruction set of this processor that may be used: avx512, avx2 or neon.
        limit_s: time limit of the compiler, s.

    Raises:
        RuntimeFailed: there is no compiler, it failed, or there is no room.
    """
    return _compiled(source(_distinct(kernels)), instructions, limit_s)


def compiled_for_plans(kernels: Iterable[FloatKernel | HostKernel]) -> str:
    """Return the path of a library of some kernels as plans call them, for this processor.

    Raises:
        RuntimeFailed: there is no compiler, it failed, or there is no room.
    """
    every = list(kernels)
    loops = _distinct(one for one in every if isinstance(one, FloatKernel))
    programs = {one.name: one for one in every if isinstance(one, HostKernel)}
    text = plan_source(loops, [programs[name] for name in sorted(programs)])
    return _compiled(text, instructions_here(), _LIMIT_S)


def instructions_here() -> str:
    """Return the widest known instruction set of this processor; empty for none."""
    isa = set(device_fingerprint().isa)
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= isa:
        return "avx512"
    if {"avx2", "fma"} <= isa:
        return "avx2"
    return "neon" if "asimd" in isa else ""


def _distinct(kernels: Iterable[FloatKernel]) -> list[FloatKernel]:
    distinct = {kernel.name: kernel for kernel in kernels}
    return [distinct[name] for name in sorted(distinct)]


def _compiled(text: str, instructions: str, limit_s: float) -> str:
    if why := compiler_missing():
        raise RuntimeFailed(why)
    command = _command()
    flags = (*_FLAGS, *_INSTRUCTIONS.get(instructions, ()))
    parts = [text, *(path.read_text("utf-8") for path in _HEADERS), *flags]
    parts += [*command, _version(command)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    return cached_library(key) or _made(key, text, (*command, *flags), min(limit_s, _LIMIT_S))


def _path(key: str) -> Path | None:
    folder = cache_folder()
    return None if not folder else Path(folder) / "kernels" / f"{key}.so"


def cached_library(key: str) -> str:
    """Return the path of a cached library if it is undamaged; empty otherwise."""
    if key in _unkept:
        return os.path.join(_unkept[key].path, "kernels.so")
    path = _path(key)
    try:
        data = b"" if path is None else path.read_bytes()
    except OSError:
        return ""
    content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if path is None or hashlib.sha256(content).digest() != digest:
        return ""
    with suppress(OSError):
        os.utime(path)
    return str(path)


def _trim(folder: Path) -> None:
    """Remove the least recently used libraries until the others are within the limit."""
    found = []
    for path in folder.glob("*.so"):
        with suppress(OSError):  # another process may have removed it
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    size = sum(bytes_ for _, bytes_, _ in found)
    oldest = datetime.now(UTC).timestamp() - _IN_USE_S
    for used, bytes_, path in sorted(found):
        if size <= _MOST_BYTES or used > oldest:
            return
        with suppress(OSError):
            path.unlink()
        size -= bytes_


_unkept: dict[str, Scratch] = {}
"""Libraries that could not be cached, by key; they are removed at the end of the process."""


def _made(key: str, text: str, command: Sequence[str], limit_s: float) -> str:
    scratch = Scratch()
    target = os.path.join(scratch.path, "kernels.so")
    written = os.path.join(scratch.path, "kernels.cpp")
    write_whole(written, text, RuntimeFailed)
    includes = [f"-I{folder}" for folder in dict.fromkeys(str(h.parent) for h in _HEADERS)]
    try:
        done = subprocess.run(
            [*command, *includes, written, "-o", target],
            capture_output=True, text=True, errors="replace", check=False, timeout=limit_s,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise RuntimeFailed("the C++ compiler took too long for the generated kernels") from error
    except OSError as error:
        raise RuntimeFailed(f"the C++ compiler does not start: {error}") from error
    if done.returncode:
        lines = printable(done.stderr)
        raise RuntimeFailed(f"the C++ compiler refuses the generated kernels: {lines[:300]}")
    with open(target, "rb") as file:
        content = file.read()
    path = _path(key)
    if path is not None:
        with suppress(EqsatError, OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, content + hashlib.sha256(content).digest(), mode=0o700)
            _trim(path.parent)
            return str(path)
    _unkept[key] = scratch
    return target
