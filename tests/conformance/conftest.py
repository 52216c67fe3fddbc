"""The library of kernels, with each set of instructions."""

from __future__ import annotations

import ctypes
import shutil

import pytest

from eqsat_opt.runtime.backends.native.library import library_path


@pytest.fixture(scope="module", params=["avx512", "avx2", "neon"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The library with these instructions; each copy of the file decides anew."""
    wanted = request.param
    copy = tmp_path_factory.mktemp("kernels") / f"{wanted}.so"
    shutil.copy(library_path(), copy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EQSAT_OPT_INSTRUCTIONS", wanted)
        loaded = ctypes.CDLL(str(copy))
        loaded.eqsat_opt_instructions.restype = ctypes.c_char_p
        found = loaded.eqsat_opt_instructions().decode()
    if found != wanted:
        pytest.skip(f"this processor has no instructions called {wanted}")
    return str(copy)
