"""The memory that sessions of onnxruntime take for values, as predicted and as counted.

Run from the repository root:

    python -m benchmarks.session_memory [MODEL ...]

A model is a file, a name of the zoo, or a kind of `benchmarks.training`: its step of Adam. Each
is measured as it is written, and in the order of the least peak that is found for a session. The
memory is counted between onnxruntime and the C library, by a library in C that is compiled and
loaded before it: blocks of at least 1 kB that one run takes and gives back, without the arena,
which grows in steps. Inputs belong to the caller and are left out of both numbers.

It ends with exit code 1 if a session that optimises nothing takes more than a twentieth more or
less than predicted.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import onnxruntime as ort
import typer

from benchmarks.training import KINDS, built
from eqsat_opt.api import resolve
from eqsat_opt.ir import import_model, load_model
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.runtime.memory.orders import Lifetimes
from eqsat_opt.runtime.memory.session_memory import SessionMemory
from eqsat_opt.training.joint import TrainingOptions, training_graph

_COUNTER = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <stdlib.h>
static long live, peak;
static int is_counting;
static int (*take)(void **, size_t, size_t);
static void (*give)(void *);
void count_begin(void) { live = peak = 0; is_counting = 1; }
long count_end(void) { is_counting = 0; return peak; }
int posix_memalign(void **block, size_t alignment, size_t size) {
  if (!take) take = dlsym(RTLD_NEXT, "posix_memalign");
  int failed = take(block, alignment, size);
  if (is_counting && !failed && size >= 1024) {
    long now = __sync_add_and_fetch(&live, (long)malloc_usable_size(*block));
    if (now > peak) peak = now;
  }
  return failed;
}
void *memalign(size_t alignment, size_t size) {
  void *block = 0;
  return posix_memalign(&block, alignment, size) ? 0 : block;
}
void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }
void free(void *block) {
  if (!give) give = dlsym(RTLD_NEXT, "free");
  if (is_counting && block) {
    size_t size = malloc_usable_size(block);
    if (size >= 1024) __sync_sub_and_fetch(&live, (long)size);
  }
  give(block);
}
"""

_LEVELS = {
    "as written": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "default": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_CLOSE = 0.05
_CHILD = "EQSAT_OPT_COUNTED"


def counted(path: str) -> dict[str, int]:
    """Return the bytes that the third run of a model takes at each level, in this process."""
    counter: Any = ctypes.CDLL(None)
    counter.count_end.restype = ctypes.c_long
    found = {}
    for name, level in _LEVELS.items():
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.enable_cpu_mem_arena = options.enable_mem_pattern = False
        options.graph_optimization_level = level
        options.log_severity_level = 3
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        feeds = {
            one.name: np.ones(one.shape, np.int64 if "int64" in one.type else np.float32)
            for one in session.get_inputs()
        }
        for _ in range(3):
            counter.count_begin()
            session.run(None, feeds)
            found[name] = counter.count_end()
    return found


def measured(model: onnx.ModelProto, folder: Path) -> dict[str, int]:
    """Return the same, counted in a process that has the counter."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    given = {**os.environ, "LD_PRELOAD": str(folder / "counter.so"), _CHILD: str(path)}
    command = [sys.executable, "-m", "benchmarks.session_memory"]
    told = subprocess.run(command, env=given, capture_output=True, text=True, check=True)
    return {str(key): int(value) for key, value in json.loads(told.stdout).items()}


def given(name: str) -> Any:
    """Return a model by its name."""
    if name not in KINDS:
        return resolve(name)
    options = TrainingOptions(loss="cross_entropy", optimiser="adam")
    return training_graph(built(KINDS[name]), options).model


def main(models: Annotated[list[str] | None, typer.Argument(metavar="MODEL")] = None) -> None:
    """Compare predicted and counted memory."""
    if _CHILD in os.environ:
        print(json.dumps(counted(os.environ[_CHILD])))
        return
    far = False
    with tempfile.TemporaryDirectory() as folder:
        source, compiler = Path(folder, "counter.c"), shutil.which("cc") or "cc"
        source.write_text(_COUNTER)
        library = str(source.with_suffix(".so"))
        flags = ("-O1", "-shared", "-fPIC", "-o", library, str(source), "-ldl")
        subprocess.run([compiler, *flags], check=True)
        print(f"{'model':16} order    predicted, MB  as written  default session  at least")
        for name in models or list(KINDS):
            loaded = load_model(given(name))
            graph = import_model(loaded)
            ordered = SessionMemory(graph, {}).with_less()
            files = {"given": (graph, loaded), "found": (ordered, export_model(ordered))}
            for title, (one, model) in files.items():
                memory = SessionMemory(one, {})
                inputs = Lifetimes.of(one).begin_bytes
                predicted, least = memory.peak_bytes() - inputs, memory.lower_bound_bytes() - inputs
                told = measured(model_proto(model), Path(folder))
                far |= abs(told["as written"] / predicted - 1) > _CLOSE
                print(
                    f"{name:16} {title:7} {predicted / 1e6:14.3f}  {told['as written'] / 1e6:10.3f}"
                    f"  {told['default'] / 1e6:15.3f}  {least / 1e6:8.3f}",
                    flush=True,
                )
    if far:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
