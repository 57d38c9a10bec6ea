"""A trace of another system: requests in a CSV or Parquet file, read and checked.

The file has a row per request, in order of arrival, with these columns; others are
ignored:

- ``arrival_s``: seconds; the first row is the origin;
- ``class``: the class in the results, that of exactly one traffic entry;
- ``flow``: the client or tenant that fair policies serve;
- ``service_us``: the service time in microseconds.

An error names the file, the line (CSV) or row (Parquet), and the column. The file is
read once per process, and only if its hash equals the checked one.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from experiments.design.config_errors import ExperimentError

COLUMNS: Final = ("arrival_s", "class", "flow", "service_us")
# Keeps every instant within the 53 bits that a float holds exactly.
_SPAN_S_MAX: Final = 9e6
_SERVICE_US_MAX: Final = 1e10
# Measured at the peak of reading a million rows: 213 from CSV, 222 from Parquet.
BYTES_PER_ROW: Final = 240
_CHUNK_BYTES: Final = 1 << 20
_NUMBERS: Final = ("arrival_s", "service_us")
_NAME: Final = pa.dictionary(pa.int32(), pa.string())
_TYPES: Final = {name: pa.float64() if name in _NUMBERS else _NAME for name in COLUMNS}

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TraceFile:
    """The requests of a file, by columns in order of arrival.

    ``class_code`` and ``flow_code`` are indices into ``classes`` and ``flows``, both in
    order of first appearance. ``flow_position`` numbers the flows of each class from 0.
    """

    path: Path
    arrival_ns: Int64s
    service_ns: Int64s
    classes: tuple[str, ...]
    class_code: Int32s
    flows: tuple[str, ...]
    flow_code: Int32s
    flow_position: Int32s

    def __len__(self) -> int:
        return len(self.arrival_ns)

    @property
    def span_s(self) -> float:
        """Return the time from the first arrival to the last."""
        return int(self.arrival_ns[-1]) / 1e9

    def of_class(self, name: str) -> npt.NDArray[np.bool_]:
        """Return a mask of the requests of a class."""
        code = self.classes.index(name) if name in self.classes else -1
        found: npt.NDArray[np.bool_] = self.class_code == code
        return found

    def fault(self, row: int, column: str, words: str) -> ExperimentError:
        """Return an error about a row's value, with file, place and column."""
        return _fault(self.path, row, column, words)


def digest(path: Path) -> str:
    """Return the SHA-256 of a file.

    :raises ExperimentError: if it cannot be read.
    """
    try:
        with path.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise ExperimentError(str(path), error.strerror or str(error)) from error


@functools.lru_cache(maxsize=1)
def recorded(path: str, sha256: str) -> TraceFile:
    """Return the requests of a file with a checked hash.

    :raises ExperimentError: if it has changed, or is no such trace.
    """
    found = digest(Path(path))
    if found != sha256:
        raise ExperimentError(
            path, f"its SHA-256 is {found}, expected {sha256} (workload.trace_sha256)"
        )
    return read(Path(path))


def read(path: Path) -> TraceFile:
    """Read a trace. Cost: O(rows).

    :raises ExperimentError: naming the first invalid row and column.
    """
    if path.suffix not in (".csv", ".parquet"):
        raise ExperimentError(str(path), "expected a name in .csv or .parquet")
    is_csv = path.suffix == ".csv"
    try:
        _refuse_huge(path, _csv_rows(path) if is_csv else _parquet_rows(path))
        table = _csv(path) if is_csv else _parquet(path)
    except (OSError, pa.ArrowException, csv.Error) as error:
        words = " ".join(str(error).split())
        raise ExperimentError(str(path), words) from error
    if not table.num_rows:
        raise ExperimentError(str(path), "has no requests")
    arrival_s = _numbers(path, table, "arrival_s", 0.0, None)
    service_us = _numbers(path, table, "service_us", 0.001, _SERVICE_US_MAX)
    earlier = np.flatnonzero(np.diff(arrival_s) < 0)
    if len(earlier):
        row = int(earlier[0]) + 1
        words = (
            f"{arrival_s[row]:.9g} comes after {arrival_s[row - 1]:.9g}; "
            "requests have to be in order of arrival"
        )
        raise _fault(path, row, "arrival_s", words)
    from_first_s = arrival_s - arrival_s[0]
    if from_first_s[-1] > _SPAN_S_MAX:
        row = int(np.argmax(from_first_s > _SPAN_S_MAX))
        words = f"{from_first_s[row]:.9g} s after the first, at most {_SPAN_S_MAX:.9g}"
        raise _fault(path, row, "arrival_s", words)
    classes, class_code = _names(path, table, "class")
    flows, flow_code = _names(path, table, "flow")
    return TraceFile(
        path=path,
        arrival_ns=np.rint(from_first_s * 1e9).astype(np.int64),
        service_ns=np.rint(service_us * 1e3).astype(np.int64),
        classes=classes,
        class_code=class_code,
        flows=flows,
        flow_code=flow_code,
        flow_position=_positions(class_code, flow_code, len(flows)),
    )


# ---- files ----------------------------------------------------------------------


def _csv_rows(path: Path) -> int:
    """Return the number of lines below the header; the header has every column."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        header = next(csv.reader(lines), None)
    if header is None:
        raise ExperimentError(str(path), "is empty")
    _check_columns(path, header, "line 1: ")
    with path.open("rb") as content:
        chunks = iter(functools.partial(content.read, _CHUNK_BYTES), b"")
        return sum(chunk.count(b"\n") for chunk in chunks)


def _parquet_rows(path: Path) -> int:
    metadata = pq.read_metadata(path)
    _check_columns(path, metadata.schema.to_arrow_schema().names, "")
    return int(metadata.num_rows)


def _check_columns(path: Path, names: list[str], place: str) -> None:
    for name in COLUMNS:
        if names.count(name) != 1:
            number = "no" if name not in names else "more than one"
            raise ExperimentError(
                str(path),
                f"{place}there is {number} column {name!r} among {', '.join(names)}",
            )


def _refuse_huge(path: Path, rows: int) -> None:
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    most = memory_bytes // 2 // BYTES_PER_ROW
    if rows > most:
        raise ExperimentError(
            str(path),
            f"has {rows:,} requests; reading them takes "
            f"{rows * BYTES_PER_ROW / 1e9:,.1f} GB of memory, and this machine, which "
            f"has {memory_bytes / 1e9:,.1f} GB, reads at most {most:,}",
        )


def _csv(path: Path) -> pa.Table:
    options = arrow_csv.ConvertOptions(
        column_types=_TYPES,
        include_columns=list(COLUMNS),
        null_values=[],
        strings_can_be_null=False,
    )
    try:
        return arrow_csv.read_csv(path, convert_options=options)
    except pa.ArrowInvalid as error:
        fault = _first_csv_fault(path)
        if fault is None:
            raise
        raise fault from error


def _first_csv_fault(path: Path) -> ExperimentError | None:
    """Return an error about the first row with missing values or text for a number."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        reader = csv.reader(lines)
        header = next(reader)
        for row in filter(None, reader):
            place = f"line {reader.line_num}"
            if len(row) != len(header):
                words = f"{len(row)} values, expected {len(header)} as in line 1"
                return ExperimentError(str(path), f"{place}: {words}")
            for name, text in zip(header, row, strict=True):
                if name in _NUMBERS and not _is_number(text):
                    words = f"found {text!r}, expected a number"
                    return ExperimentError(str(path), f"{place}, {name}: {words}")
                if name in COLUMNS and "\ufffd" in text:
                    words = f"found {text!r}, expected UTF-8"
                    return ExperimentError(str(path), f"{place}, {name}: {words}")
    return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _parquet(path: Path) -> pa.Table:
    table = pq.read_table(path, columns=list(COLUMNS))
    arrays = []
    for name in COLUMNS:
        column = table[name]
        if column.null_count:
            row = int(np.argmax(column.is_null().to_numpy()))
            raise _fault(path, row, name, "there is no value")
        try:
            arrays.append(_cast(column, _TYPES[name]))
        except pa.ArrowException as error:
            words = f"column {name!r} is {column.type}, expected {_TYPES[name]}"
            raise ExperimentError(str(path), words) from error
    return pa.table(dict(zip(COLUMNS, arrays, strict=True)))


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if not pa.types.is_dictionary(kind):
        return column.cast(kind)
    texts = column.cast(pa.string()) if column.type != pa.string() else column
    return texts.dictionary_encode()


# ---- values ---------------------------------------------------------------------


def _numbers(
    path: Path, table: pa.Table, name: str, low: float, high: float | None
) -> npt.NDArray[np.float64]:
    """Return a column of numbers, all finite and within the bounds."""
    values: npt.NDArray[np.float64] = table[name].to_numpy()
    fits = np.isfinite(values) & (values >= low)
    expected = f"at least {low:g}"
    if high is not None:
        fits &= values <= high
        expected = f"a number from {low:g} to {high:g}"
    if not fits.all():
        row = int(np.argmin(fits))
        raise _fault(path, row, name, f"found {values[row]:.9g}, expected {expected}")
    return values


def _names(path: Path, table: pa.Table, name: str) -> tuple[tuple[str, ...], Int32s]:
    """Return a column's names in order of first appearance, and its codes."""
    column = table[name].unify_dictionaries().combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0)
    names: list[str] = column.dictionary.to_pylist()
    codes: Int32s = column.indices.to_numpy(zero_copy_only=False).astype(np.int32)
    if "" in names:
        row = int(np.argmax(codes == names.index("")))
        raise _fault(path, row, name, "there is no value")
    used, first = np.unique(codes, return_index=True)
    order = used[np.argsort(first, kind="stable")]
    renumbered = np.zeros(len(names), np.int32)
    renumbered[order] = np.arange(len(order), dtype=np.int32)
    return tuple(names[code] for code in order), renumbered[codes]


def _positions(class_code: Int32s, flow_code: Int32s, flows: int) -> Int32s:
    """Number the flows of each class from 0, in order of first appearance."""
    pair = class_code.astype(np.int64) * flows + flow_code
    pairs, first, back = np.unique(pair, return_index=True, return_inverse=True)
    position = np.zeros(len(pairs), np.int32)
    seen: dict[int, int] = {}
    for at in np.argsort(first, kind="stable").tolist():
        of_class = int(pairs[at]) // flows
        position[at] = seen.get(of_class, 0)
        seen[of_class] = seen.get(of_class, 0) + 1
    found: Int32s = position[back.reshape(-1)]
    return found


def _fault(path: Path, row: int, column: str, words: str) -> ExperimentError:
    return ExperimentError(str(path), f"{_place(path, row)}, {column}: {words}")


def _place(path: Path, row: int) -> str:
    """Return the place of a row: the line in CSV, the row in Parquet."""
    if path.suffix != ".csv":
        return f"row {row + 1}"
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        reader = csv.reader(lines)
        next(reader)
        for number, _ in enumerate(filter(None, reader)):
            if number == row:
                return f"line {reader.line_num}"
    return f"row {row + 1}"
