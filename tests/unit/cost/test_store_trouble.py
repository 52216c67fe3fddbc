"""A profile store that cannot be used is a warning; the run goes on without it."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from eqsat_opt import api
from eqsat_opt.cli import main
from eqsat_opt.cost import pricing
from eqsat_opt.cost import store as store_module
from eqsat_opt.cost.profile import ProfileKey
from eqsat_opt.cost.store import CACHE_VARIABLE, ProfileStore
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline import prices
from eqsat_opt.pipeline.options import Options
from eqsat_opt.runtime.backends.workers import MeasurementRequest
from eqsat_opt.runtime.measure import Measurement

KEY = ProfileKey("onnxruntime", '{"op":"Relu"}', "default", "cpu-0", 1, 1)
Trouble = Callable[[Path], Any]


def damaged(path: Path) -> None:
    path.write_bytes(b"no database" * 100)


def cut_off(path: Path) -> None:
    with ProfileStore(path) as store:
        store.put_many({KEY: None})
    path.write_bytes(path.read_bytes()[:5000])


def a_folder(path: Path) -> None:
    path.mkdir()


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def of_another_shape(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE profile_v2 (x)")
    connection.close()


def no_folder(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("a file")


@contextmanager
def held(path: Path) -> Iterator[None]:
    with ProfileStore(path) as store:
        store.rows()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA locking_mode=EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        connection.close()


@contextmanager
def full(path: Path) -> Iterator[None]:
    """A disk on which nothing more fits: SQLite itself refuses to let the file grow."""
    prepare = store_module._create_schema

    def bounded(connection: sqlite3.Connection, wait_s: float) -> None:
        prepare(connection, wait_s)
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")

    with ProfileStore(path) as store:
        filler = "x" * 3000
        store.put_many({ProfileKey(filler, str(n), "", "", 1, 1): None for n in range(3)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "_create_schema", bounded)
        yield


@pytest.mark.parametrize(
    ("trouble", "why"),
    [
        (damaged, "is damaged"),
        (cut_off, "is damaged|malformed"),
        (a_folder, "unable to open"),
        (a_pipe, "I/O error"),
        (of_another_shape, "no such column"),
        (no_folder, "File exists|Not a directory"),
        (held, "another process has held it"),
    ],
)
def test_a_store_that_cannot_be_read(
    trouble: Trouble, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prices, "ProfileStore", partial(ProfileStore, wait_s=0.01))
    path = tmp_path / "folder" / "store.sqlite3"
    path.parent.mkdir()
    options = Options(effort="quick", race=False, check=0, store=os.fspath(path), threads=1)
    with trouble(path) or nullcontext():
        report = api.run(zoo.build("weight_chain", scale="tiny"), options).report
    (warning,) = report.warnings
    assert "or kept in it" in warning
    assert re.search(why, warning), warning


def _measured(
    requests: Sequence[MeasurementRequest], *_: object, **__: object
) -> list[Measurement]:
    return [Measurement(1.0, 1.0, 1.0, 1, 1, "cpu", 1.0, 1.0, 0.0, "y" * 3000) for _ in requests]


def test_a_store_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store.sqlite3"
    options = Options(race=False, check=0, store=os.fspath(path), threads=1)
    monkeypatch.setattr(pricing, "measure_kernels", _measured)
    with full(path):
        report = api.run(zoo.build("weight_chain", scale="tiny"), options).report
    assert report.kernels_measured > 0
    (warning,) = report.warnings
    assert "full" in warning


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, "~nobody-of-this-name/cache")
    options = Options(effort="quick", race=False, check=0, threads=1)
    report = api.run(zoo.build("weight_chain", scale="tiny"), options).report
    assert ["no home folder" in warning for warning in report.warnings] == [True]


def test_the_warning_is_seen_and_the_file_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    damaged(tmp_path / "store.sqlite3")
    arguments = ["optimize", "zoo:weight_chain@tiny", "-o", "out.onnx", "--effort", "quick"]
    for quiet in ([], ["--quiet"]):
        assert main([*arguments, "--store", "store.sqlite3", *quiet]) == 0
        captured = capsys.readouterr()
        assert "is damaged" in captured.out + captured.err
    assert (tmp_path / "store.sqlite3").read_bytes() == b"no database" * 100
    assert sorted(os.listdir(tmp_path)) == ["out.onnx", "store.sqlite3"]
