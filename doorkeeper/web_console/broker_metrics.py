"""Metrics of a Doorkeeper broker, read from its endpoint.

The endpoint listens on the broker's loopback (`doorkeeper.metrics.port`), so only a
console on the same machine can read it. The port may belong to another broker or
another program there, so `doorkeeper_broker_info` identifies the broker.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import trio

from broker.client.network_client import Connect, reach

HOST: Final = "127.0.0.1"
TIMEOUT_S: Final = 3.0
INFO: Final = "doorkeeper_broker_info"
_ANSWER_BYTES_MAX: Final = 4 << 20
# Larger values have no meaning as times or counts, and would break a page's columns.
_VALUE_MAX: Final = 1e15
_REQUEST: Final = (
    b"GET /metrics/requests HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
)
_LABEL: Final = r'[a-zA-Z_]\w*="[^"\\]*(?:\\.[^"\\]*)*"'
_SAMPLE: Final = re.compile(
    rf"([a-zA-Z_:][\w:]*)(?:\{{({_LABEL}(?:,{_LABEL})*)\}})? ([-+.a-zA-Z0-9]{{1,40}})",
    re.ASCII | re.DOTALL,
)
_PAIR: Final = re.compile(r'(\w+)="([^"\\]*(?:\\.[^"\\]*)*)"', re.ASCII | re.DOTALL)
_ESCAPE: Final = re.compile(r'\\([\\n"])')
_ESCAPED: Final[Mapping[str, str]] = MappingProxyType({"n": "\n"})
# Lines parsed between two checkpoints.
_LINES: Final = 1_000


class NoMetrics(Exception):
    """An endpoint without the broker's metrics; the message is one sentence."""


class Sample(NamedTuple):
    """A value with its labels."""

    labels: Mapping[str, str]
    value: float


Samples = Mapping[str, list[Sample]]


def sample_of(line: str) -> tuple[str, Sample] | None:
    r"""Return the name and the sample of a line of Prometheus' text format.

    None for a comment, a malformed line, and a value that is no finite number. Values
    are cut to the range from 0 to `_VALUE_MAX`.

    >>> sample_of('a{b="c\\"d"} 2')
    ('a', Sample(labels={'b': 'c"d'}, value=2.0))
    """
    found = _SAMPLE.fullmatch(line)
    if found is None:
        return None
    name, labels, written = found.groups()
    try:
        value = float(written)
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    pairs = _PAIR.findall(labels or "")
    found_labels = {
        key: _ESCAPE.sub(lambda it: _ESCAPED.get(it[1], it[1]), text)
        for key, text in pairs
    }
    if len(found_labels) < len(pairs):
        return None
    return name, Sample(found_labels, min(max(value, 0.0), _VALUE_MAX))


async def read_metrics(
    connect: Connect,
    port: int,
    wanted: Collection[str],
    *,
    cluster_id: str | None,
    broker_id: int,
) -> Samples:
    """Read the ``wanted`` names from an endpoint on this machine; raises `NoMetrics`.

    The endpoint must be that of the named broker.
    """
    place = f"{HOST}:{port}"
    body = (await _answer(connect, port, place)).decode(errors="replace")
    found: dict[str, list[Sample]] = {}
    for number, line in enumerate(body.split("\n")):
        if number % _LINES == _LINES - 1:
            await trio.lowlevel.checkpoint()
        name = re.split("[{ ]", line, maxsplit=1)[0]
        if name == INFO or name in wanted:
            sample = sample_of(line)
            if sample is not None:
                found.setdefault(name, []).append(sample[1])
    expected = {"cluster_id": cluster_id or "", "broker_id": str(broker_id)}
    if [it.labels for it in found.pop(INFO, ())] != [expected]:
        raise NoMetrics(f"the endpoint at {place} is not that of this broker")
    return found


async def _answer(connect: Connect, port: int, place: str) -> bytes:
    answer = bytearray()
    try:
        with trio.fail_after(TIMEOUT_S):
            stream = await reach(connect, HOST, port, TIMEOUT_S)
            try:
                await stream.send_all(_REQUEST)
                while chunk := await stream.receive_some():
                    answer += chunk
                    if len(answer) > _ANSWER_BYTES_MAX:
                        raise NoMetrics(f"the answer of {place} is too large")
            finally:
                await stream.aclose()
    except (OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
        why = f"nothing at {place} answers: metrics are read on the broker's machine"
        raise NoMetrics(why) from error
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise NoMetrics(f"the answer of {place} holds no metrics")
    return body
