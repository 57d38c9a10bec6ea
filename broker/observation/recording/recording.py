"""Recording: every finished request as a row of a binary file, and its reader.

The broker writes stamps only; the analysis derives durations. A row is packed when its
response has been sent, and rows are written in batches of hundreds to save system
calls. Names (classes, flows, planes) are stored once, as JSON strings, in a separate
file; rows contain their line numbers. Two more files are written when the broker has
stopped: broken laws (``planes.laws``) and CPU accounts.

Requests with a negative correlation id are not recorded: load generators use ids from 0
for measured requests, and negative ids for the setup of topics.

The samples file contains the state of every plane at a fixed period: its queue, and the
idle ratios of its handlers and processors. If the writer was killed, a file may end in
a torn row, which readers drop.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, TextIO

from broker.requests.request import Request

NAMES_SUFFIX: Final = ".names"
SAMPLES_SUFFIX: Final = ".samples"
LAWS_SUFFIX: Final = ".laws"
ACCOUNTS_SUFFIX: Final = ".accounts"
_FLUSH_BYTES: Final = 1 << 16


class RequestRow(NamedTuple):
    """A request; times are nanoseconds of the broker's monotonic clock.

    ``service_ns`` is the CPU used by its handler, ``prior_ns`` the CPU of its intake
    and before its turns. Neither includes the writing of the response, because a row
    may be written before its end. ``throttle_ns`` is the time for which the connection
    was not read after the response, because of a quota or admission.
    """

    correlation_id: int
    request_class: str
    flow: str
    api_key: int
    size_bytes: int
    received_ns: int
    enqueued_ns: int
    dequeued_ns: int
    local_done_ns: int
    remote_done_ns: int
    response_dequeued_ns: int
    response_sent_ns: int
    service_ns: int
    prior_ns: int
    suspended_ns: int
    throttle_ns: int
    preemptions: int
    error_code: int


class SampleRow(NamedTuple):
    """The state of a plane at one time.

    ``queued`` requests were never served, ``waiting`` are queued or preempted,
    ``seated`` are in service, and ``refused`` were read but found the queue full. The
    ratios are shares of the period since the last sample: without CPU use by the
    plane's handlers, of waits of its processors for their sockets (mean), and of
    housekeeping. The last ratio is the same for all planes.
    """

    t_ns: int
    plane: str
    queued: int
    waiting: int
    seated: int
    refused: int
    handler_idle: float
    processor_idle: float
    housekeeping: float


_FIELDS: Final = RequestRow._fields
_MEASURED: Final = _FIELDS.index("service_ns")
# The stamps and the other counts, in this order.
STAMPS: Final = _FIELDS[_FIELDS.index("received_ns") : _MEASURED]
MEASURES: Final = _FIELDS[_MEASURED : _FIELDS.index("error_code")]

# Little-endian and packed, for NumPy structured types and for `struct`.
_NUMPY_TO_STRUCT: Final = {"i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q"}
REQUEST_TYPES: Final = tuple(
    zip(
        RequestRow._fields,
        ("i4", "u4", "u4", "i2", "u4", *("i8",) * 11, "u4", "i2"),
        strict=True,
    )
)
SAMPLE_TYPES: Final = tuple(
    zip(SampleRow._fields, ("i8", *("u4",) * 5, "f4", "f4", "f4"), strict=True)
)


def _struct(types: Sequence[tuple[str, str]]) -> struct.Struct:
    codes = {**_NUMPY_TO_STRUCT, "f4": "f"}
    return struct.Struct("<" + "".join(codes[code] for _, code in types))


_REQUEST: Final = _struct(REQUEST_TYPES)
_SAMPLE: Final = _struct(SAMPLE_TYPES)


class Names:
    """Numbers for names, in order of their first occurrence."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """Return the name's number; a new name is written at once."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._numbers)
            self._stream.write(json.dumps(name) + "\n")
            self._stream.flush()
        return number

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


class Recorder:
    """Writer of rows; it owns and closes the streams."""

    def __init__(
        self,
        requests: BinaryIO,
        samples: BinaryIO,
        names: TextIO,
        laws: TextIO,
        accounts: TextIO,
    ) -> None:
        self._laws = laws
        self._accounts_file = accounts
        self._accounts: Mapping[str, int] = {}
        self._requests = requests
        self._samples = samples
        self._names = Names(names)
        self._rows: list[bytes] = []
        self._violations: Mapping[str, int] = {}

    def record(self, request: Request) -> None:
        """Add the row of a finished request."""
        if request.correlation_id < 0:
            return
        number, task = self._names.number, request.task
        self._rows.append(
            _REQUEST.pack(
                request.correlation_id,
                number(task.request_class),
                number(task.flow),
                request.api_key,
                task.size_bytes,
                task.received_ns,
                task.enqueued_ns,
                task.dequeued_ns,
                task.local_done_ns,
                task.remote_done_ns,
                task.response_dequeued_ns,
                task.response_sent_ns,
                task.service_ns,
                task.prior_ns,
                task.suspended_ns,
                max(task.throttled_until_ns - task.response_sent_ns, 0),
                task.preemptions,
                request.error_code,
            )
        )
        if len(self._rows) * _REQUEST.size >= _FLUSH_BYTES:
            self.flush()

    def sample(self, row: SampleRow) -> None:
        """Add the sample of one plane."""
        self._samples.write(
            _SAMPLE.pack(row.t_ns, self._names.number(row.plane), *row[2:])
        )

    def violations(self, counts: Mapping[str, int]) -> None:
        """Write the number of violations of each law (``planes.laws``), at the end."""
        self._violations = counts

    def accounts(self, totals: Mapping[str, int]) -> None:
        """Write the CPU used and billed, at the end."""
        self._accounts = totals

    def flush(self) -> None:
        """Write all rows to the operating system."""
        self._requests.write(b"".join(self._rows))
        self._rows.clear()
        self._requests.flush()
        self._samples.flush()

    def close(self) -> None:
        """Write the remaining rows, and close the files."""
        self.flush()
        self._laws.write(json.dumps(self._violations) + "\n")
        self._laws.close()
        self._accounts_file.write(json.dumps(self._accounts) + "\n")
        self._accounts_file.close()
        self._requests.close()
        self._samples.close()
        self._names.close()


def open_recorder(path: Path) -> Recorder:
    """Return a recorder that writes new files at ``path`` and next to it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return Recorder(
        path.open("wb"),
        _with_suffix(path, SAMPLES_SUFFIX).open("wb"),
        _with_suffix(path, NAMES_SUFFIX).open("w", encoding="utf-8"),
        _with_suffix(path, LAWS_SUFFIX).open("w", encoding="utf-8"),
        _with_suffix(path, ACCOUNTS_SUFFIX).open("w", encoding="utf-8"),
    )


def read_names(path: Path) -> list[str]:
    """Return the names of a recording by their numbers."""
    lines = _with_suffix(path, NAMES_SUFFIX).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def read_violations(path: Path) -> dict[str, int] | None:
    """Return the number of violations per law; None if the broker was not stopped."""
    text = _with_suffix(path, LAWS_SUFFIX).read_text(encoding="utf-8")
    counts: dict[str, int] | None = json.loads(text) if text else None
    return counts


def read_accounts(path: Path) -> dict[str, int]:
    """Return the CPU used and billed; empty if the broker was not stopped."""
    text = _with_suffix(path, ACCOUNTS_SUFFIX).read_text(encoding="utf-8")
    totals: dict[str, int] = json.loads(text) if text else {}
    return totals


def read_requests(path: Path) -> Iterator[RequestRow]:
    """Iterate over the requests of a recording, in the order of their completion."""
    names = read_names(path)
    for row in _rows(path, _REQUEST):
        correlation_id, request_class, flow, *rest = row
        yield RequestRow(correlation_id, names[request_class], names[flow], *rest)


def read_samples(path: Path) -> Iterator[SampleRow]:
    """Iterate over the samples of a recording, in order of time."""
    names = read_names(path)
    for t_ns, plane, *rest in _rows(_with_suffix(path, SAMPLES_SUFFIX), _SAMPLE):
        yield SampleRow(t_ns, names[plane], *rest)


def _rows(path: Path, row: struct.Struct) -> Iterator[tuple[int, ...]]:
    data = path.read_bytes()
    whole = len(data) - len(data) % row.size
    return row.iter_unpack(memoryview(data)[:whole])


def _with_suffix(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
