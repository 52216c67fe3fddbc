"""The profile store: exact round trips, several writers, damage reported and never hidden."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eqsat_opt.cost.profile import ProfileKey
from eqsat_opt.cost.store import CACHE_VARIABLE, ProfileStore, store_path
from eqsat_opt.errors import StoreError
from eqsat_opt.runtime.measure import Measurement
from eqsat_opt.runtime.processor import device_fingerprint, fingerprint_of

RESULT = Measurement(1.25, 2.0, 3.0, 21, 1, "cpu", 1.5, 1.25, 0.5, "blocked")
KEY = ProfileKey("onnxruntime 1.31.1", '{"op":"Relu"}', "default", "cpu-0", 1, 1)


def key(index: int) -> ProfileKey:
    return dataclasses.replace(KEY, kernel=json.dumps({"op": "Relu", "n": index}))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ProfileStore]:
    with ProfileStore(tmp_path / "new" / "profile.sqlite3") as opened:
        yield opened


def test_round_trip(store: ProfileStore) -> None:
    other = dataclasses.replace(RESULT, time_us=0.1 + 0.2)
    store.put_many({key(0): RESULT, key(1): other, key(2): None})
    store.close()
    found = store.get_many(key(index) for index in range(4))
    assert found == {key(0): RESULT, key(1): other, key(2): None}


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(ProfileKey)])
def test_every_part_of_the_key_counts(store: ProfileStore, field: str) -> None:
    value = getattr(KEY, field)
    change: dict[str, Any] = {field: value + 1 if isinstance(value, int) else value + "x"}
    store.put_many({KEY: RESULT})
    assert store.get_many([dataclasses.replace(KEY, **change)]) == {}
    assert store.get_many([KEY]) == {KEY: RESULT}


def test_newer_result_replaces_older(store: ProfileStore) -> None:
    store.put_many({KEY: None})
    store.put_many({KEY: RESULT})
    assert store.get_many([KEY]) == {KEY: RESULT}
    assert [row.measurement for row in store.rows()] == [RESULT]


def test_stats_and_clear(store: ProfileStore) -> None:
    assert store.stats().n_measurements == 0
    assert store.stats().oldest == ""
    foreign = dataclasses.replace(KEY, device="cpu-1")
    store.put_many({key(0): RESULT, key(1): None, foreign: RESULT})
    stats = store.stats()
    assert (stats.n_measurements, stats.n_failures) == (2, 1)
    assert stats.per_backend == {KEY.backend: 3}
    assert stats.per_device == {"cpu-0": 2, "cpu-1": 1}
    assert stats.size_bytes > 0
    assert stats.oldest <= stats.newest != ""
    json.dumps(dataclasses.asdict(stats))
    assert store.clear() == 3
    assert store.rows() == []


def test_export_and_import(store: ProfileStore, tmp_path: Path) -> None:
    store.put_many({key(0): RESULT, key(1): None})
    exported = tmp_path / "export.json"
    assert store.export_json(exported) == 2
    with ProfileStore(tmp_path / "other.sqlite3") as other:
        assert other.import_json(exported) == 2
        assert other.rows() == store.rows()
    assert [path.name for path in tmp_path.glob("*.json*")] == ["export.json"]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.pop("format"),
        lambda data: data.update(version=99),
        lambda data: data["rows"][0].pop("kernel"),
        lambda data: data["rows"][0].update(threads="1"),
        lambda data: data["rows"][0]["measurement"].update(time_us="fast"),
        lambda data: data["rows"][0].update(measured_at="yesterday"),
    ],
    ids=["format", "version", "field", "type", "measurement", "date"],
)
def test_malformed_import_changes_nothing(
    store: ProfileStore, tmp_path: Path, change: object
) -> None:
    assert callable(change)
    store.put_many({key(1): RESULT, key(2): RESULT})
    path = tmp_path / "export.json"
    store.export_json(path)
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    store.clear()
    with pytest.raises(StoreError, match="not an export"):
        store.import_json(path)
    assert store.rows() == []
    with pytest.raises(StoreError, match="cannot read"):
        store.import_json(tmp_path / "missing.json")


def test_unwritable_export_leaves_nothing(store: ProfileStore, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="cannot write"):
        store.export_json(tmp_path / "folder")
    assert list(tmp_path.glob(".folder*")) == []


def _write_hundred(path: str, writer: int) -> None:
    with ProfileStore(path, wait_s=300) as store:
        for start in range(0, 100, 5):
            shared = {key(index): RESULT for index in range(5)}
            own = {key(1000 * (writer + 1) + start + i): RESULT for i in range(5)}
            store.put_many({**shared, **own})
            assert len(store.get_many(own)) == 5


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "profile.sqlite3"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_hundred, args=(str(path), n)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0, 0, 0]
    with ProfileStore(path) as store:
        assert store.stats().n_measurements == 5 + 4 * 100


def test_damaged_file_is_reported_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "profile.sqlite3"
    garbage = b"this is not a database, but somebody may want it back" * 100
    path.write_bytes(garbage)
    with ProfileStore(path) as store:
        for attempt in (lambda: store.get_many([KEY]), lambda: store.put_many({KEY: RESULT})):
            with pytest.raises(StoreError, match=r"damaged.*move it away"):
                attempt()
        assert path.read_bytes() == garbage
        store.close()
        path.rename(path.with_name("damaged"))
        store.put_many({KEY: RESULT})
        assert store.get_many([KEY]) == {KEY: RESULT}


def test_damage_inside_is_reported(store: ProfileStore) -> None:
    store.put_many({key(index): RESULT for index in range(500)})
    store.close()
    data = bytearray(store.path.read_bytes())
    data[4096 : 4096 * 12] = b"\xff" * 4096 * 11
    store.path.write_bytes(data)
    with pytest.raises(StoreError, match="damaged"):
        store.rows()


@pytest.mark.parametrize("text", ["{", "{}", "3", '"null"', "[" * 100_000])
def test_unreadable_entry_is_reported(store: ProfileStore, text: str) -> None:
    store.put_many({KEY: RESULT})
    store.close()
    connection = sqlite3.connect(store.path)
    with connection:
        connection.execute("UPDATE profile_v2 SET measurement = ?", (text,))
    connection.close()
    with pytest.raises(StoreError, match="damaged"):
        store.get_many([KEY])


def test_full_disk_keeps_what_was_there(store: ProfileStore) -> None:
    store.put_many({KEY: RESULT})
    connection = store._connected()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match=r"full.*make room"):
        store.put_many({key(index): RESULT for index in range(1000)})
    assert store.get_many([KEY, key(1)]) == {KEY: RESULT}


def test_read_only_store_is_still_read(
    store: ProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put_many({KEY: RESULT})
    store.close()

    def refuse(connection: sqlite3.Connection, wait_s: float) -> None:
        raise sqlite3.OperationalError("attempt to write a readonly database")

    monkeypatch.setattr("eqsat_opt.cost.store._create_schema", refuse)
    assert store.get_many([KEY]) == {KEY: RESULT}
    with pytest.raises(StoreError, match=f"(?s)readonly.*{CACHE_VARIABLE}"):
        store.put_many({key(1): RESULT})


def test_impossible_place(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot read the profile store"):
        ProfileStore(tmp_path / "file" / "profile.sqlite3").get_many([KEY])
    with pytest.raises(StoreError, match="cannot write the profile store"):
        ProfileStore(tmp_path).put_many({KEY: RESULT})
    with pytest.raises(StoreError, match="null"):
        ProfileStore("null\0byte").get_many([KEY])


def test_a_store_that_is_held_is_not_waited_for_long(tmp_path: Path) -> None:
    path = tmp_path / "profile.sqlite3"
    with ProfileStore(path) as store:
        store.put_many({KEY: RESULT})
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("PRAGMA locking_mode=EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    try:
        with ProfileStore(path, wait_s=0.01) as waiting:
            for attempt in (lambda: waiting.get_many([KEY]), lambda: waiting.put_many({KEY: None})):
                with pytest.raises(StoreError, match="another process has held it"):
                    attempt()
    finally:
        holder.close()
    with ProfileStore(path) as store:
        assert store.get_many([KEY]) == {KEY: RESULT}


def test_place_of_the_default_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    assert ProfileStore().path == store_path() == tmp_path / "profile.sqlite3"
    monkeypatch.delenv(CACHE_VARIABLE)
    assert "eqsat-opt" in str(store_path())


def test_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, "~nobody-of-this-name/cache")
    with pytest.raises(StoreError, match=f"no home folder.*{CACHE_VARIABLE}"):
        ProfileStore()


def test_other_versions_of_the_schema_are_left_alone(store: ProfileStore) -> None:
    store.put_many({KEY: RESULT})
    store.close()
    connection = sqlite3.connect(store.path)
    with connection:
        connection.execute("CREATE TABLE profile_v0 (x)")
        connection.execute("INSERT INTO profile_v0 VALUES (1)")
    store.clear()
    assert connection.execute("SELECT * FROM profile_v0").fetchall() == [(1,)]
    connection.close()


def test_an_export_of_version_1_is_imported(store: ProfileStore, tmp_path: Path) -> None:
    store.put_many({KEY: RESULT})
    path = tmp_path / "export.json"
    store.export_json(path)
    data = json.loads(path.read_text())
    data["version"] = 1
    for row in data["rows"]:
        del row["forms"], row["precision"]
    path.write_text(json.dumps(data))
    store.clear()
    assert store.import_json(path) == 1
    assert store.get_many([KEY]) == {KEY: RESULT}


FACTS = {"model name": "AMD  EPYC", "flags": "fpu avx2 smep hypervisor", "stepping": "1"}


def test_fingerprint_depends_on_what_changes_speed() -> None:
    base = fingerprint_of(FACTS)
    assert base.name == "AMD EPYC (avx2, virtual)"
    assert base.isa == ("avx2",)
    assert base.is_virtual
    assert fingerprint_of({**FACTS, "cpu MHz": "3000", "flags": FACTS["flags"] + " erms"}) == base
    for change in (
        {"flags": "fpu avx2 avx512f hypervisor"},
        {"flags": "fpu avx2"},
        {"model name": "AMD Ryzen"},
        {"stepping": "2"},
    ):
        assert fingerprint_of({**FACTS, **change}).id != base.id


def test_fingerprint_of_this_machine_is_stable() -> None:
    assert device_fingerprint() == device_fingerprint()
    assert device_fingerprint().id.startswith("cpu-")
    assert device_fingerprint().name
