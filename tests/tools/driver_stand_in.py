"""A `libcuda.so.1` that has no device, so that cuDNN tells of kernels that it compiles itself.

`python -m tests.tools.driver_stand_in FOLDER` builds one there; with ``LD_LIBRARY_PATH=FOLDER``
cuDNN plans those kernels for devices that are not here. It claims that a library of kernels was
loaded, and refuses all else, so nothing can run; what cuDNN builds with it is only for looking at.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

__all__ = ["build", "functions_in", "source"]

_NO_DEVICE = 100
_LOADED = {
    "cuDriverGetVersion": "(int* version) { *version = 13000; return 0; }",
    "cuInit": "(unsigned flags) { return 0; }",
    "cuKernelGetAttribute": "(int* value) { *value = 0; return 0; }",
    "cuKernelSetAttribute": "(void) { return 0; }",
    "cuLibraryGetKernel": "(void** kernel) { *kernel = (void*)2; return 0; }",
    "cuLibraryLoadData": "(void** library) { *library = (void*)1; return 0; }",
    "cuLibraryLoadFromFile": "(void** library) { *library = (void*)1; return 0; }",
    "cuLibraryUnload": "(void) { return 0; }",
}
"""What planning needs; every other function of the driver says that there is no device."""


def functions_in(libraries: Iterable[Path]) -> set[str]:
    """The functions of the driver that some libraries name."""
    found: set[str] = set()
    for path in libraries:
        names = re.findall(rb"\0(cu[A-Z][A-Za-z0-9_]{2,})(?=\0)", path.read_bytes())
        found.update(name.decode() for name in names)
    return found


def source(functions: Iterable[str]) -> str:
    """A driver in C."""
    others = f"(void) {{ return {_NO_DEVICE}; }}"
    return "\n".join(
        f"int {name}{_LOADED.get(name, others)}" for name in sorted({*functions, *_LOADED})
    )


def build(folder: Path) -> Path:
    """The library, for the cuDNN that is installed here."""
    found = find_spec("nvidia.cudnn")
    assert found is not None, "cuDNN is not installed"
    (place,) = found.submodule_search_locations or [""]
    folder.mkdir(parents=True, exist_ok=True)
    text, library = folder / "driver.c", folder / "libcuda.so.1"
    text.write_text(source(functions_in(sorted(Path(place, "lib").glob("libcudnn*.so.9")))))
    command = ["gcc", "-w", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", "-o"]
    subprocess.run([*command, str(library), str(text)], check=True)
    return library


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
