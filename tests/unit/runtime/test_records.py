"""The records of backends: every part is there, and the registry finds what they say."""

from __future__ import annotations

from dataclasses import fields
from importlib import import_module

import pytest

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.record import BackendRecord, Lazy
from eqsat_opt.runtime.backends.registry import (
    fallback,
    launcher_names,
    load_backend,
    load_runner,
    load_runtime,
    record_of,
    records,
)

PARTS = [
    pytest.param(part, id=f"{name} {field.name}")
    for name, record in records().items()
    for field in fields(record)
    if isinstance(part := getattr(record, field.name), Lazy)
]


@pytest.mark.parametrize("part", PARTS)
def test_every_part_is_there(part: Lazy) -> None:
    module, _, name = part.place.partition(":")
    assert callable(getattr(import_module(module), name))


def test_a_part_is_imported_when_it_is_called() -> None:
    assert Lazy("operator:neg")(1) == -1
    missing = Lazy("nowhere:neg")
    with pytest.raises(ImportError, match="nowhere"):
        missing(1)


def test_kernels_and_runtimes_are_called_as_their_backends() -> None:
    for name, record in records().items():
        if record.kernels:
            assert load_backend(name).name == name
        if record.launches:
            assert load_backend(record.launched_name).name == f"launched:{name}"
        if record.runtime:
            assert load_runtime(name).name == name


def test_who_is_offered_to_users() -> None:
    assert launcher_names() == ("numpy", "ort", "native", "generated", "openvino")
    assert fallback() == "numpy"
    only = [name for name, record in records().items() if record.is_plan_only]
    assert only == ["native", "generated", "numpy", "openvino"]
    libraries = [name for name, record in records().items() if record.is_gpu_library]
    assert libraries == ["cudnn", "cublaslt"]


def test_a_backend_that_is_not_ours_has_no_parts() -> None:
    assert record_of("cray") == BackendRecord(name="cray")
    with pytest.raises(RuntimeFailed, match="the backend 'ort' runs nothing on a GPU"):
        load_runner("ort", None)  # type: ignore[arg-type]
