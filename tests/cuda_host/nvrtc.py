"""NVRTC of the wheel ``nvidia-cuda-nvrtc-cu12`` (or ``-cu13``), which needs no driver."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.util import find_spec
from pathlib import Path

__all__ = ["OPTIONS", "cubin_bytes", "missing"]

OPTIONS = "-std=c++17", "-ftz=true", "--device-as-default-execution-space"
"""With which CuPy 14 compiles: what device code is need not be said, and denormals are zeros."""


@cache
def _library() -> ctypes.CDLL | None:
    spec = find_spec("nvidia")
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = [p for f in folders for p in sorted(Path(f).glob("*/lib/libnvrtc.so.*")) if p.is_file()]
    return ctypes.CDLL(str(found[0])) if found else None


def missing() -> str:
    """Why nothing can be compiled here; empty if it can."""
    return "" if _library() else "there is no NVRTC; run pip install nvidia-cuda-nvrtc-cu12"


def cubin_bytes(text: str, architecture: str) -> int:
    """The size of the machine code of a translation unit.

    Raises:
        ValueError: it is refused; what the compiler says.
    """
    library = _library()
    assert library is not None
    program = ctypes.c_void_p()
    made = library.nvrtcCreateProgram(
        ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None
    )
    assert not made
    options = (f"-arch={architecture}", *OPTIONS)
    status = library.nvrtcCompileProgram(
        program, len(options), (ctypes.c_char_p * len(options))(*map(str.encode, options))
    )
    size = ctypes.c_size_t()
    if status:
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, log)
        raise ValueError(log.value.decode(errors="replace"))
    library.nvrtcGetCUBINSize(program, ctypes.byref(size))
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return size.value
