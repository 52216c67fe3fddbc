r"""Inputs that mean something, drawn by a program, and how often two models agree on them.

    python -m benchmarks.meaningful draw lines rec.onnx samples.npz --count 40
    eqsat-opt optimize rec.onnx -o fast.onnx --numerics approximate --calibration samples.npz \
        --max-error 0.2 --threads 1
    python -m benchmarks.meaningful agree lines rec.onnx fast.onnx

`lines` are rendered lines of text in many fonts, sizes and qualities, for recognisers: two models
agree where the decoded texts are equal. `sounds` are synthetic speech, noise and silence in windows
of streams, for detectors of voice activity: they agree where both or neither find a voice. `files`
are the contents of files of many types, for classifiers of these: they agree on the label.
Times are minima of runs in turns, on one thread.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import math
import sysconfig
import tarfile
import time
import wave
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import typer
from rich.console import Console

from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.source import Feeds

app = typer.Typer(add_completion=False, help=__doc__)
console = Console()

_Array = npt.NDArray[Any]

_SEED = 7
"""Seed of the inputs on which models agree; those of calibration begin elsewhere."""

_HEIGHT, _WIDTH = 48, 320
_RATE, _WINDOW, _CONTEXT = 16_000, 512, 64
_HEAD = 1024
_NOTHING = 256
"""Token where a file has no byte."""

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:-&%$"
_WORDS = (
    "invoice", "total", "amount", "date", "number", "street", "customer", "order", "price", "table",
    "delivery", "article", "quantity", "tax", "net", "payment", "bank", "account", "reference",
    "signed", "contract", "page", "section", "figure", "report",
)  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A kind of inputs.

    Attributes:
        draw: yields feeds for a model without end, from a generator of random numbers.
        decode: what the outputs for one input say.
    """

    draw: Callable[[OrtSession, np.random.Generator], Iterator[Feeds]]
    decode: Callable[[Sequence[Any]], object]


def lines(session: OrtSession, rng: np.random.Generator) -> Iterator[Feeds]:
    """Yield images of lines of text `[1, 3, 48, 320]` from -1 to 1."""
    from PIL import Image, ImageDraw, ImageFilter, ImageFont

    fonts = list(_fonts())
    (name,) = session.input_names
    while True:
        text = _text(rng)
        font = ImageFont.truetype(fonts[rng.integers(len(fonts))], int(rng.integers(24, 36)))
        paper, ink = int(rng.integers(190, 256)), int(rng.integers(0, 90))
        image = Image.new("L", (_WIDTH, _HEIGHT), paper)
        place = (int(rng.integers(2, 16)), int(rng.integers(0, 10)))
        ImageDraw.Draw(image).text(place, text, fill=ink, font=font)
        image = image.rotate(float(rng.normal(0, 0.7)), fillcolor=paper)
        image = image.filter(ImageFilter.GaussianBlur(float(rng.uniform(0, 1.0))))
        pixels = np.asarray(image, np.float32) + rng.normal(0, rng.uniform(0, 8), image.size[::-1])
        scaled = (np.clip(pixels, 0, 255) / 127.5 - 1).astype(np.float32)
        yield {name: np.ascontiguousarray(np.broadcast_to(scaled, (1, 3, _HEIGHT, _WIDTH)))}


def _fonts() -> Iterator[str]:
    import matplotlib

    for path in sorted(Path(matplotlib.get_data_path(), "fonts", "ttf").glob("*.ttf")):
        if path.stem.startswith(("DejaVu", "STIXGeneral", "cmr", "cmss", "cmtt", "cmb")) and (
            "Display" not in path.stem
        ):
            yield str(path)


def _text(rng: np.random.Generator) -> str:
    if rng.random() < 0.3:
        return "".join(rng.choice(list(_LETTERS), int(rng.integers(4, 12))))
    words = " ".join(rng.choice(_WORDS, int(rng.integers(1, 4))))
    style = rng.integers(3)
    return [words, words.title(), f"{words} {rng.integers(10_000)}"][style][:22]


def decoded_text(outputs: Sequence[Any]) -> tuple[int, ...]:
    """Return the characters of `[1, steps, characters]`: repetitions and blanks are left out."""
    best = outputs[0][0].argmax(axis=-1)
    kept = best[np.append(True, best[1:] != best[:-1])]
    return tuple(int(one) for one in kept if one)


def sounds(session: OrtSession, rng: np.random.Generator) -> Iterator[Feeds]:
    """Yield windows of streams with the state that the model itself reached before them."""
    size = _WINDOW + _CONTEXT
    while True:
        state = np.zeros((2, 1, 128), np.float32)
        stream = _stream(rng, 20 * _WINDOW)
        for first in range(0, len(stream) - size, _WINDOW):
            fed = {
                "input": stream[None, first : first + size],
                "state": state,
                "sr": np.array(_RATE, np.int64),
            }
            feeds = {name: fed[name] for name in session.input_names}
            yield feeds
            state = np.asarray(session.run(feeds)[1])


def _stream(rng: np.random.Generator, size: int) -> _Array:
    """Return a voice with formants, noise or silence, and changes between them."""
    times = np.arange(size) / _RATE
    pitch = rng.uniform(90, 240) * (1 + 0.06 * np.sin(2 * math.pi * rng.uniform(2, 5) * times))
    phase = 2 * math.pi * np.cumsum(pitch) / _RATE
    voice = np.zeros(size)
    formants = rng.uniform((300, 900, 2200), (800, 1800, 3000))
    for harmonic in range(1, 30):
        distance = np.min(np.abs(formants - harmonic * pitch.mean()))
        voice += np.exp(-distance / 250) * np.sin(harmonic * phase) / math.sqrt(harmonic)
    syllables = np.clip(np.sin(2 * math.pi * rng.uniform(2, 5) * times + rng.uniform(0, 6)), 0, 1)
    is_on = np.repeat(rng.random(-(-size // 2048)) < 0.6, 2048)[:size]
    voice *= syllables * is_on * rng.uniform(0.05, 0.3) / max(1e-9, float(np.abs(voice).max()))
    noise = rng.standard_normal(size) * rng.uniform(0.0002, 0.03)
    return (voice + noise).astype(np.float32)


def has_voice(outputs: Sequence[Any]) -> bool:
    """Return whether a detector finds a voice."""
    return bool(np.ravel(outputs[0])[0] > 0.5)


def files(session: OrtSession, rng: np.random.Generator) -> Iterator[Feeds]:
    """Yield the first and last 1,024 bytes of files as tokens `[1, 2048]`."""
    (name,) = session.input_names
    while True:
        content = _CONTENTS[int(rng.integers(len(_CONTENTS)))](rng)
        tokens = np.full((1, 2 * _HEAD), _NOTHING, np.int32)
        head, tail = (np.frombuffer(one, np.uint8) for one in (content[:_HEAD], content[-_HEAD:]))
        tokens[0, : len(head)] = head
        tokens[0, 2 * _HEAD - len(tail) :] = tail
        yield {name: tokens}


def label(outputs: Sequence[Any]) -> int:
    """Return the label of a classifier."""
    return int(np.argmax(outputs[0]))


def _words_of(rng: np.random.Generator, count: int = 200) -> str:
    return " ".join(rng.choice(_WORDS, count))


def _table(rng: np.random.Generator) -> list[list[str]]:
    return [list(rng.choice(_WORDS, 5)) for _ in range(40)]


def _source(rng: np.random.Generator) -> bytes:
    """Return a module of Python's own."""
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return modules[rng.integers(len(modules))].read_bytes()


def _in_csv(rng: np.random.Generator) -> bytes:
    held = io.StringIO()
    csv.writer(held).writerows(_table(rng))
    return held.getvalue().encode()


def _in_json(rng: np.random.Generator) -> bytes:
    rows = [dict(zip(_WORDS, row, strict=False)) for row in _table(rng)]
    return json.dumps(rows, indent=int(rng.integers(1, 4))).encode()


def _in_html(rng: np.random.Generator) -> bytes:
    rows = "".join(f"<tr>{''.join(f'<td>{x}</td>' for x in row)}</tr>\n" for row in _table(rng))
    title = _words_of(rng, 3)
    head = f"<!DOCTYPE html>\n<html><head><title>{title}</title></head>\n"
    return f"{head}<body><table>\n{rows}</table></body></html>".encode()


def _in_xml(rng: np.random.Generator) -> bytes:
    rows = "".join(
        f'  <item id="{i}">{" ".join(row)}</item>\n' for i, row in enumerate(_table(rng))
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<list>\n{rows}</list>\n'.encode()


def _in_markdown(rng: np.random.Generator) -> bytes:
    parts = [f"## {_words_of(rng, 3)}\n\n- {_words_of(rng, 20)}\n\n```sh\nls -l\n```\n\n"] * 8
    return f"# {_words_of(rng, 2)}\n\n{''.join(parts)}".encode()


def _in_shell(rng: np.random.Generator) -> bytes:
    lines_ = [f'{word.upper()}="{_words_of(rng, 3)}"\necho "${word.upper()}"' for word in _WORDS]
    return ("#!/bin/bash\nset -e\n" + "\n".join(lines_)).encode()


def _in_zip(rng: np.random.Generator) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(5):
            archive.writestr(f"{rng.choice(_WORDS)}{number}.txt", _words_of(rng))
    return held.getvalue()


def _in_tar(rng: np.random.Generator) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        content = _words_of(rng).encode()
        entry = tarfile.TarInfo(f"{rng.choice(_WORDS)}.txt")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return held.getvalue()


def _in_wave(rng: np.random.Generator) -> bytes:
    held = io.BytesIO()
    with wave.open(held, "wb") as written:
        written.setnchannels(1)
        written.setsampwidth(2)
        written.setframerate(_RATE)
        written.writeframes((_stream(rng, 4096) * 32_000).astype(np.int16).tobytes())
    return held.getvalue()


def _image(form: str) -> Callable[[np.random.Generator], bytes]:
    def made(rng: np.random.Generator) -> bytes:
        from PIL import Image

        held = io.BytesIO()
        pixels = rng.integers(0, 256, (12, 12, 3)).repeat(8, axis=0).repeat(8, axis=1)
        Image.fromarray(pixels.astype(np.uint8)).save(held, form)
        return held.getvalue()

    return made


def _in_npy(rng: np.random.Generator) -> bytes:
    held = io.BytesIO()
    np.save(held, rng.standard_normal(400))
    return held.getvalue()


_CONTENTS: Sequence[Callable[[np.random.Generator], bytes]] = (
    _source, _in_csv, _in_json, _in_html, _in_xml, _in_markdown, _in_shell, _in_zip, _in_tar,
    _in_wave, _in_npy, *(_image(form) for form in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")),
    lambda rng: _words_of(rng, 300).encode(),
    lambda rng: gzip.compress(_words_of(rng, 900).encode()),
    lambda rng: bz2.compress(_words_of(rng, 900).encode()),
    lambda rng: zlib.compress(_words_of(rng, 900).encode()),
    lambda rng: rng.bytes(4000),
)  # fmt: skip

KINDS: Mapping[str, Kind] = {
    "lines": Kind(lines, decoded_text),
    "sounds": Kind(sounds, has_voice),
    "files": Kind(files, label),
}

KindName = Annotated[str, typer.Argument(help=f"One of {', '.join(KINDS)}.")]
Model = Annotated[str, typer.Argument(help="An ONNX file.")]
Count = Annotated[int, typer.Option(help="Number of inputs.")]


def _kind(name: str) -> Kind:
    if name not in KINDS:
        raise typer.BadParameter(f"{name} is no kind; there are {', '.join(KINDS)}")
    return KINDS[name]


@app.command()
def draw(kind: KindName, model: Model, file: Path, count: Count = 40, seed: int = 1_000) -> None:
    """Write inputs for calibration to a file ``.npz``, arrays with one axis more."""
    drawn = _kind(kind).draw(OrtSession(model, OrtOptions(1)), np.random.default_rng(seed))
    feeds = [next(drawn) for _ in range(count)]
    stacked: dict[str, Any] = {name: np.stack([one[name] for one in feeds]) for name in feeds[0]}
    np.savez(file, **stacked)


@app.command()
def agree(kind: KindName, model: Model, fast: Model, count: Count = 500, timed: Count = 40) -> None:
    """Count on how many inputs two models agree, and compare their times."""
    chosen = _kind(kind)
    sessions = [OrtSession(one, OrtOptions(1)) for one in (model, fast)]
    drawn = chosen.draw(sessions[0], np.random.default_rng(_SEED))
    agreed, said, best_s = 0, set(), [math.inf, math.inf]
    for number in range(count):
        feeds, found = next(drawn), []
        for index, session in enumerate(sessions):
            began = time.perf_counter()
            outputs = session.run(feeds)
            if number < timed:
                best_s[index] = min(best_s[index], time.perf_counter() - began)
            found.append(chosen.decode(outputs))
        said.add(found[0])
        agreed += found[0] == found[1]
    console.print(
        f"agree on {agreed} of {count} inputs ({agreed / count:.1%}), which say {len(said)} "
        f"things; {1e3 * best_s[0]:.2f} → {1e3 * best_s[1]:.2f} ms, "
        f"{best_s[1] / best_s[0]:.3f} of the time"
    )


if __name__ == "__main__":
    app()
