"""Compiles generated CUDA kernels with g++ and runs them on NumPy arrays; see ``cuda_host.h``."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from eqsat_opt.ir.graph.graph import Graph, Node, attributes
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.backends.generated.gpu.cuda import Geometry, cuda_kernels, cuda_source
from eqsat_opt.runtime.backends.generated.program import KernelProgram

__all__ = ["Compiled", "Kernel", "compiled", "missing", "node_graph"]

Array = NDArray[Any]


def missing() -> str:
    """Why nothing can run here; empty if it can."""
    return "" if shutil.which("g++") else "there is no g++ to run CUDA kernels with"


@dataclass(frozen=True)
class Kernel:
    """The text of a program's kernels and how they are launched."""

    program: KernelProgram
    text: str
    launches: tuple[Geometry, ...]

    @classmethod
    def of(cls, name: str, program: KernelProgram) -> Kernel:
        return cls(program, *cuda_kernels(name, program))


@dataclass(frozen=True)
class Compiled:
    """Kernels as a library of this machine."""

    library: ctypes.CDLL

    def run(self, kernel: Kernel, pointers: Sequence[int], seed: int = 1) -> str:
        """Run all launches of a kernel; why one failed, or nothing."""
        data = (ctypes.c_void_p * len(pointers))(*pointers)
        for launch in kernel.launches:
            function = getattr(self.library, f"run_{launch.name}")
            function.restype = ctypes.c_char_p
            fault = function(data, seed)
            if fault:
                return str(fault.decode())
        return ""


def compiled(kernels: Sequence[Kernel], folder: Path, name: str = "kernels") -> Compiled:
    """One library of all kernels."""
    runners = []
    for kernel in kernels:
        reads, writes = len(kernel.program.reads), len(kernel.program.writes)
        for launch in kernel.launches:
            arguments = ", ".join(f"Any{{data[{i}]}}" for i in range(reads + writes))
            cooperative = str(launch.is_cooperative).lower()
            runners += [
                f'extern "C" const char* run_{launch.name}(void** data, unsigned seed) {{',
                f"  return host::launch([](void** data) {{ {launch.name}({arguments}); }},",
                f"      data, {launch.blocks}, {launch.threads}, {cooperative}, seed);",
                "}",
            ]
    any_pointer = "struct Any { void* p; template <class T> operator T*() { return (T*)p; } };"
    text = "\n".join(
        [
            '#include "cuda_host.h"',
            cuda_source([kernel.text for kernel in kernels]),
            "using namespace eqsat;",
            any_pointer,
            *runners,
        ]
    )
    source = folder / f"{name}.cpp"
    source.write_text(text, "utf-8")
    library = folder / f"{name}.so"
    # A pack that is not aligned ends the process, as it ends everything on a GPU.
    command = ["g++", "-std=c++17", "-O0", "-w", "-shared", "-fPIC", "-ffp-contract=off"]
    command += ["-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"]
    command += [f"-I{Path(__file__).parent}", str(source), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr[:4000]
    return Compiled(ctypes.CDLL(str(library)))


def node_graph(op: str, types: Sequence[TensorType], attrs: Mapping[str, Any]) -> Graph:
    """A graph of one node."""
    names = tuple(f"x{i}" for i in range(len(types)))
    result = get_op(op).type_fn(types, attrs)
    return Graph(
        inputs=names,
        outputs=("y",),
        nodes=(Node(op, names, ("y",), attributes(**attrs), sources=("node",)),),
        constants={},
        types={**dict(zip(names, types, strict=True)), "y": result},
    )
