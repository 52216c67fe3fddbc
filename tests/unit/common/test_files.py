"""Whole files or none: failures at every step, killed writers, several writers, odd targets."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from eqsat_opt.common import files
from eqsat_opt.common.files import (
    Scratch,
    abandoned_parts,
    folder_lock,
    part_of,
    remove_unfinished,
    replacing,
    write_whole,
)
from eqsat_opt.common.paths import obstacle, real_path, same_file, short_name
from eqsat_opt.errors import EqsatError, OptionError


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "out"
    write_whole(target, "first")
    target.chmod(0o640)
    write_whole(target, b"second")
    assert target.read_bytes() == b"second"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert names(tmp_path) == ["out"]


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    write_whole(tmp_path / "ours", "")
    (tmp_path / "plain").write_text("")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_failing_block_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("old")

    def fail(error: type[BaseException]) -> None:
        with replacing(target) as file:
            file.write(b"half")
            raise error

    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error):
            fail(error)
        assert target.read_text() == "old"
        assert names(tmp_path) == ["out"]


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
def test_a_failing_call_leaves_what_was_there(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    target.write_text("old")

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OptionError, match=r"cannot write .*No space left on device; "):
        write_whole(target, "new", OptionError)
    monkeypatch.undo()
    assert target.read_text() == "old"
    assert names(tmp_path) == ["out"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link, target = tmp_path / "link", tmp_path / "folder" / "target"
    link.symlink_to("folder/target")
    write_whole(link, "new")  # where it leads to need not exist yet
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert names(tmp_path / "folder") == ["target"]


@pytest.mark.parametrize("name", ["x" * 255, "ä" * 127, "x" * 200])
def test_the_longest_names_can_be_written(name: str, tmp_path: Path) -> None:
    write_whole(tmp_path / name, "new")
    assert names(tmp_path) == [name]


def test_short_names_differ_where_names_do() -> None:
    assert short_name("model.onnx", 30) == "model.onnx"
    long = ["x" * 250 + end for end in "abc"]
    short = {short_name(name, 40) for name in long}
    assert len(short) == 3
    assert max(len(name) for name in short) <= 215
    assert len(short_name("ä" * 127, 40).encode()) <= 215


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("", "is empty"),
        ("missing/out", "does not exist"),
        ("folder", "is a folder"),
        ("folder/", "names a folder"),
        ("new/", "names a folder"),
        (os.devnull, "not an ordinary file"),
        ("pipe", "not an ordinary file"),
        ("x" * 256, "File name too long"),
        ("null\0byte", "null"),
        ("C:\\models\\out.onnx", "a path of Windows"),
        ("\\\\server\\out.onnx", "a path of Windows"),
        ("loop", "symbolic links"),
        ("file/out", "does not exist"),
        ("dangling", "does not exist"),
    ],
)
def test_what_stands_in_the_way_is_said(
    path: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("missing/out")
    assert why in obstacle(path)


def test_missing_permissions_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "out").write_text("")
    assert obstacle(tmp_path / "out") == obstacle(tmp_path / "new") == ""
    denied = str(tmp_path)
    monkeypatch.setattr(os, "access", lambda path, _: path != denied)  # root may do all
    assert "no permission" in obstacle(tmp_path / "out")
    denied = str(tmp_path / "out")
    assert "write-protected" in obstacle(tmp_path / "out")


def test_files_are_the_same_by_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_text("")
    (tmp_path / "b").write_text("")
    (tmp_path / "link").symlink_to("a")
    os.link("a", "hard")
    for other in ("a", "./a", tmp_path / "a", "link", "hard"):
        assert same_file("a", other)
    assert not same_file("a", "b")
    assert not same_file("a", "missing")
    assert same_file("missing", "./missing")


# ** processes that are killed **

_KILLED = """
import os, signal, sys
from eqsat_opt.common import files, paths
target, note = paths.real_path(sys.argv[1]), sys.argv[2]
scratch = files.Scratch()
open(os.path.join(scratch.path, "large"), "w").close()
with files.part_of(target, note) as part:
    part.file.write(b"half")
    print(scratch.path, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_writer(target: Path, note: str = "") -> str:
    """Let a process be killed while it writes; the scratch folder that it had."""
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(target), note], capture_output=True, text=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stdout.strip()


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    target, other = tmp_path / "out", tmp_path / "output"
    killed_writer(target)
    killed_writer(other)
    assert len(names(tmp_path)) == 2
    write_whole(target, "new")
    left = names(tmp_path)
    assert len(left) == 2
    assert "out" in left
    assert left[0].startswith(".output.eqsat-")  # another target is another's business
    write_whole(other, "new")
    assert names(tmp_path) == ["out", "output"]


def test_notes_are_handed_to_whoever_finds_them(tmp_path: Path) -> None:
    target = tmp_path / "out"
    killed_writer(target, "abc")
    write_whole(target, "new")  # knows nothing of notes, so it leaves them
    assert len(names(tmp_path)) == 2
    assert list(abandoned_parts(real_path(target), "other")) == []
    assert list(abandoned_parts(real_path(target))) == ["abc"]
    assert names(tmp_path) == ["out"]


def test_what_others_still_write_is_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with part_of(real_path(target)) as part:
        part.file.write(b"first")
        part.finish()
        # Another process, to which nothing but the lock tells that the file is in use.
        code = "from eqsat_opt.common import files; import sys; "
        code += "files.write_whole(sys.argv[1], 'second')"
        subprocess.run([sys.executable, "-c", code, str(target)], check=True)
        assert len(names(tmp_path)) == 2
        part.become(real_path(target))
    assert target.read_text() == "first"
    assert names(tmp_path) == ["out"]


def test_what_another_machine_writes_is_left_for_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    monkeypatch.setattr(files, "_host", lambda: "00000000")
    killed = _left_by_another(target)
    assert list(abandoned_parts(real_path(target))) == []
    yesterday = killed.stat().st_mtime - 25 * 3600
    os.utime(killed, (yesterday, yesterday))
    assert list(abandoned_parts(real_path(target))) == [""]
    assert names(tmp_path) == []


def _left_by_another(target: Path) -> Path:
    killed_writer(target)
    (path,) = target.parent.iterdir()
    return path


def test_without_locks_nothing_counts_as_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_writer(tmp_path / "out")

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", no_locks)
    write_whole(tmp_path / "out", "new")
    assert len(names(tmp_path)) == 2
    with folder_lock(str(tmp_path)) as is_alone:
        assert not is_alone


def test_a_folder_lock_keeps_others_out(tmp_path: Path) -> None:
    with folder_lock(str(tmp_path)) as first, folder_lock(str(tmp_path), wait_s=0) as second:
        assert (first, second) == (True, False)
    with folder_lock(str(tmp_path), wait_s=0) as again:
        assert again
    with folder_lock(str(tmp_path / "missing")) as nowhere:
        assert not nowhere


def _write_often(path: str, text: str) -> None:
    for _ in range(20):
        write_whole(path, text * 10_000)


def test_several_processes_write_one_file(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    target = tmp_path / "out"
    writers = [context.Process(target=_write_often, args=(str(target), c)) for c in "abcd"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert target.read_text() in {c * 10_000 for c in "abcd"}
    assert names(tmp_path) == ["out"]


# ** scratch folders **


@pytest.fixture
def scratch_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(files, "_unfinished", {})  # engines that other tests keep have folders
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_a_scratch_folder_goes_with_its_owner(scratch_base: Path) -> None:
    scratch = Scratch()
    assert stat.S_IMODE(os.stat(scratch.path).st_mode) == 0o700
    Path(scratch.path, "file").write_text("")
    scratch.close()
    scratch.close()
    assert names(scratch_base) == []
    scratch = Scratch()
    del scratch
    assert names(scratch_base) == []
    with Scratch() as path:
        assert names(scratch_base) == [os.path.basename(path)]
    assert names(scratch_base) == []


def test_scratch_folders_of_killed_processes_are_removed(scratch_base: Path) -> None:
    kept = Scratch()
    left = killed_writer(scratch_base / "out")
    assert os.path.isdir(left)
    next(scratch_base.glob(".out*")).unlink()
    # A process that starts finds both, and removes the one that nobody holds.
    code = "from eqsat_opt.common.files import Scratch; Scratch().close()"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert names(scratch_base) == [os.path.basename(kept.path)]
    kept.close()


def test_no_place_for_a_scratch_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "mkdir", full)
    with pytest.raises(EqsatError, match=r"No space left.*TMPDIR"):
        Scratch()


def test_an_end_without_clean_up_can_still_remove_all(tmp_path: Path, scratch_base: Path) -> None:
    scratch = Scratch()
    with part_of(str(tmp_path / "out")):
        assert len(names(tmp_path)) == 2
        remove_unfinished()
        assert names(tmp_path) == []
    scratch.close()


def test_a_forked_child_leaves_its_parents_files(
    scratch_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = Scratch()
    parent = os.getpid()
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: parent + 1)
        remove_unfinished()
        scratch.close()
    assert os.path.isdir(scratch.path)
    remove_unfinished()
    assert not os.path.isdir(scratch.path)
