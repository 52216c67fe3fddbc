"""Entries of the profile store: a measured kernel, and everything that its time depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eqsat_opt.runtime.measure import Measurement

__all__ = ["ProfileKey", "ProfileRow", "StoreStats"]


@dataclass(frozen=True)
class ProfileKey:
    """Everything that a measured time depends on.

    Attributes:
        backend: name and version, such as "onnxruntime 1.31.1".
        kernel: canonical signature of the kernel: operators, attributes, shapes, dtypes.
        implementation: the backend's implementation: algorithm, layout, options.
        device: `DeviceFingerprint.id`.
        threads: number of threads.
        protocol: `PROTOCOL_VERSION` of the measurement.
        forms: forms of the operands and outputs, if the implementation names them; empty where the
            kernel determines them.
        precision: precision in which contractions multiply, such as ``tf32``; empty where it is
            that of the elements.
    """

    backend: str
    kernel: str
    implementation: str
    device: str
    threads: int
    protocol: int
    forms: str = ""
    precision: str = ""


@dataclass(frozen=True)
class ProfileRow:
    """One stored result.

    Attributes:
        key: the key of the measurement.
        measurement: the result; None if the kernel cannot be run there.
        measured_at: time of storing, ISO 8601 in UTC.
    """

    key: ProfileKey
    measurement: Measurement | None
    measured_at: str


@dataclass(frozen=True)
class StoreStats:
    """Statistics of a store.

    Attributes:
        path: path of its file.
        size_bytes: size of the file.
        n_measurements: number of entries that have a time.
        n_failures: number of kernels known not to run.
        per_backend: number of entries by backend.
        per_device: number of entries by device.
        oldest, newest: first and last time of storing; empty in an empty store.
    """

    path: str
    size_bytes: int
    n_measurements: int
    n_failures: int
    per_backend: Mapping[str, int]
    per_device: Mapping[str, int]
    oldest: str
    newest: str
