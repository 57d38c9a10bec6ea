"""The metrics over HTTP, in Prometheus' text format.

Only the HTTP needed by a scraper is implemented: GET of ``/metrics``, one request per
connection, a bounded head, a time limit. The Prometheus client library is not used,
because the format has only three kinds of lines.

``/metrics/requests`` returns the metrics of requests and planes only, for a console;
those of ten thousand partitions are megabytes.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import trio

from broker.config import DOORKEEPER_METRICS_PORT
from broker.observation.metric import Metric, Samples
from broker.observation.supervisor import Supervisor
from broker.protocol.errors import ConfigError

_HOST: Final = "127.0.0.1"
_HEAD_BYTES_MAX: Final = 8192
_TIMEOUT_S: Final = 10
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
ALL: Final = "/metrics"
OF_REQUESTS: Final = "/metrics/requests"

# Returns the samples in pieces, between which other tasks may run.
Collect: TypeAlias = Callable[[], Iterable[Sequence[Metric]]]


class Exposition:
    """Samples as text, grouped by family in order of appearance."""

    def __init__(self) -> None:
        self._families: dict[str, list[str]] = {}

    def add(self, samples: Samples) -> None:
        """Add samples."""
        for metric in samples:
            if metric is None:
                continue
            name = metric.name + ("_total" if metric.kind == "counter" else "")
            lines = self._families.setdefault(name, [f"# TYPE {name} {metric.kind}"])
            value = metric.value
            lines.append(f"{metric.name}{metric.suffix}{_labels(metric)} {value}")

    def text(self) -> str:
        """Return all samples as text."""
        return "\n".join(map("\n".join, self._families.values())) + "\n"


def open_port(port: int) -> socket.socket:
    """Return a socket that listens on this machine; raise `ConfigError`."""
    try:
        return socket.create_server((_HOST, port))
    except OSError as error:
        expected = f"a port that can be bound ({error.strerror})"
        raise ConfigError(DOORKEEPER_METRICS_PORT.name, port, expected) from error


async def serve_metrics(
    listening: socket.socket,
    collectors: Mapping[str, Collect],
    supervisor: Supervisor,
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve this machine's scrapes until cancelled; report the port first.

    ``collectors`` are the sources of the samples by path.
    """
    listeners = [trio.SocketListener(trio.socket.from_stdlib_socket(listening))]
    port = listeners[0].socket.getsockname()[1]

    async def answer(stream: trio.SocketStream) -> None:
        with supervisor.contained("scrape"), trio.move_on_after(_TIMEOUT_S):
            try:
                await _answer(stream, collectors)
            except trio.BrokenResourceError:
                # The scraper has closed the connection.
                return
            finally:
                await trio.aclose_forcefully(stream)

    async def serve() -> None:
        nonlocal listeners
        opened, listeners = listeners, []
        if not opened:
            opened = await trio.open_tcp_listeners(port, host=_HOST)
        await trio.serve_listeners(answer, opened)

    task_status.started(port)
    await supervisor.keep("metrics endpoint", serve)


async def _answer(stream: trio.SocketStream, collectors: Mapping[str, Collect]) -> None:
    head = b""
    while b"\r\n\r\n" not in head:
        chunk = await stream.receive_some(_HEAD_BYTES_MAX)
        head += chunk
        if not chunk or len(head) > _HEAD_BYTES_MAX:
            return
    method, _, rest = head.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    collect = collectors.get(path.decode("latin-1"))
    if method != b"GET":
        status, body = "405 Method Not Allowed", "only GET\n"
    elif collect is None:
        status, body = "404 Not Found", f"the metrics are at {ALL}\n"
    else:
        made = Exposition()
        for piece in collect():
            made.add(piece)
            await trio.lowlevel.checkpoint()
        made.add([_tasks()])
        status, body = "200 OK", made.text()
    content = body.encode()
    answer_head = (
        f"HTTP/1.1 {status}\r\n"
        f"Content-Type: {_CONTENT_TYPE}\r\n"
        f"Content-Length: {len(content)}\r\n"
        "Connection: close\r\n\r\n"
    )
    await stream.send_all(answer_head.encode() + content)


def _tasks() -> Metric:
    """Return the number of Trio tasks, which reveals leaks."""
    living = trio.lowlevel.current_statistics().tasks_living
    return Metric(name="doorkeeper_trio_tasks", kind="gauge", value=living)


def _labels(metric: Metric) -> str:
    if not metric.labels:
        return ""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in metric.labels.items())
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
