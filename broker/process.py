"""The composition root: a broker as a process, until a signal stops it.

Real sockets, real files and the machine's clock are passed to all other modules.

SIGTERM, SIGINT and SIGHUP stop the broker cleanly, with status 0 (Kafka:
``LoggingSignalHandler``). A second one ends the process at once, with status 1: the
logs are not closed, and the next start recovers them. SIGHUP stays ignored where the
parent ignores it, as ``nohup`` does.
"""

from __future__ import annotations

import ctypes
import gc
import os
import random
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from logging import getLogger
from pathlib import Path
from typing import Final, TypeAlias

import trio

from broker.application import Application
from broker.assembly import assemble, numbered
from broker.client.background_tasks import background
from broker.client.network_client import Connect, connect_tcp
from broker.config import (
    DOORKEEPER_LOG_FORMAT,
    DOORKEEPER_LOG_LEVEL,
    DOORKEEPER_RECORD_FILE,
    DOORKEEPER_SCHEDULER,
    BrokerConfig,
    Listener,
)
from broker.disk.files import RealStorage
from broker.handling.api_registry import load_schemas
from broker.handling.kafka_apis import KafkaApis
from broker.network import settings as network_settings
from broker.network.epoll import TcpNetwork
from broker.node.call_shell import CallThreads, call_in_thread
from broker.node.resolver_shell import look_up_in_thread
from broker.observation.busy_time import BusyTime
from broker.observation.logs import configure_logs, fields
from broker.observation.recording.recording import open_recorder
from broker.protocol.errors import LogDirsLost, UncleanStop
from broker.requests.entitlement import shared_listener
from broker.requests.topology import build
from broker.server import BrokerEnvironment, BrokerServer

logger = getLogger(__name__)

# For upkeep, and for the flushes of an orderly stop.
_DEVICE_THREADS: Final = 8
_STOPPING: Final = (
    signal.SIGTERM,
    signal.SIGINT,
    *(() if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)),
)
# The exit status of a process whose logs the next start has to recover.
_NEEDS_RECOVERY: Final = 1
# mallopt(3). The largest threshold that glibc takes.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_FREE_BYTES_KEPT: Final = 32 << 20
# New objects between two collections of the young generation. Rows of a large response
# that survive several of them cause a full collection: 0.1 s with 10,000 partitions.
NEW_OBJECTS_MAX: Final = 10_000
# Called with the listeners once they are open.
Ready: TypeAlias = Callable[[Sequence[Listener]], object]


class StoppedWhileStarting(BaseException):
    """A signal came before the broker had started.

    A BaseException, so that code which contains faults does not catch it.
    """


def main(
    config: BrokerConfig,
    connect: Connect = connect_tcp,
    ready: Ready = lambda _: None,
) -> None:
    """Run a broker as this process until a signal stops it.

    ``connect`` reaches ZooKeeper, the controller, and the leaders of followed
    partitions. ``ready`` receives the open listeners.

    :raises ConfigError: if a key does not allow it to start.
    """
    allow_all_descriptors()
    keep_freed_memory()
    storage, rng = RealStorage(), random.Random()
    # Refuses unknown policies before directories are made and ZooKeeper is contacted.
    build(config, rng)
    config = trio.run(numbered, config, storage, rng, connect)
    load_schemas()
    broker = assemble(
        config,
        storage=storage,
        now_ns=time.monotonic_ns,
        now_ms=_wall_clock_ms,
        rng=rng,
        blocking=call_in_thread,
        look_up=look_up_in_thread,
        threads=CallThreads(_DEVICE_THREADS),
        connect=connect,
    )
    run_process(config, KafkaApis(broker), ready)


def run_process(
    config: BrokerConfig, application: Application, ready: Ready = lambda _: None
) -> None:
    """Serve ``application`` on real sockets until a signal stops it."""
    configure_logs(
        sys.stderr,
        level=config[DOORKEEPER_LOG_LEVEL],
        form=config[DOORKEEPER_LOG_FORMAT],
    )
    record_file = config[DOORKEEPER_RECORD_FILE]
    busy_time = BusyTime()
    surroundings = BrokerEnvironment(
        network=TcpNetwork(network_settings.socket_options(config)),
        now_ns=time.monotonic_ns,
        rng=random.Random(),
        busy_time=busy_time,
        compute=call_in_thread,
        recorder=open_recorder(Path(record_file)) if record_file else None,
    )
    try:
        unclean = trio.run(
            _run_until_signal, config, application, surroundings, ready, clock=busy_time
        )
    except StoppedWhileStarting as stopped:
        if surroundings.recorder is not None:
            surroundings.recorder.close()
        logger.info("stopped before it had started", extra=fields(signal=str(stopped)))
        return
    if unclean is not None:
        logger.error("stopped; the logs need recovery", extra=fields(fault=unclean))
        raise SystemExit(_NEEDS_RECOVERY)
    logger.info("stopped")


async def _run_until_signal(
    config: BrokerConfig,
    application: Application,
    surroundings: BrokerEnvironment,
    ready: Ready,
) -> UncleanStop | LogDirsLost | None:
    with trio.open_signal_receiver(*_STOPPING) as signals:
        await _prepare(application, signals)
        with _stopping_at_once():
            server = BrokerServer(config, application, surroundings)
        # Objects built so far live as long as the process: collections skip them.
        gc.collect()
        gc.freeze()
        gc.set_threshold(NEW_OBJECTS_MAX)
        async with trio.open_nursery() as nursery:
            await nursery.start(_serve, server, nursery.cancel_scope)
            for listener in server.listeners:
                print(f"listening on {listener}", flush=True)
            _log_start(config, server)
            ready(server.listeners)
            await _signalled(signals)
            server.stop()
            await trio.sleep_forever()
    return server.unclean


async def _serve(
    server: BrokerServer,
    waiting: trio.CancelScope,
    task_status: trio.TaskStatus[None],
) -> None:
    """Run a broker until a signal stops it or all log directories have failed."""
    await server.run(task_status)
    waiting.cancel()


async def _prepare(application: Application, signals: AsyncIterator[int]) -> None:
    """Prepare; raise `StoppedWhileStarting` if a signal comes first."""
    stopped: list[int] = []

    async def stop(preparing: trio.CancelScope) -> None:
        stopped.append(await _signalled(signals))
        preparing.cancel()

    async with background() as nursery:
        nursery.start_soon(stop, nursery.cancel_scope)
        await application.prepare()
    if stopped:
        raise StoppedWhileStarting(stopped[0])


async def _signalled(signals: AsyncIterator[int]) -> int:
    """Wait for a signal; after it, the next one ends the process at once."""

    def end(number: int, _: object) -> None:
        try:
            logger.error(
                "stopped at once; the logs need recovery", extra=fields(signal=number)
            )
        finally:
            os._exit(_NEEDS_RECOVERY)

    first = await anext(signals)
    for number in _STOPPING:
        signal.signal(number, end)
    logger.info("stopping", extra=fields(signal=first))
    return first


@contextmanager
def _stopping_at_once() -> Iterator[None]:
    """Abort the start at a signal, at any point: recovery may take hours.

    Files survive an abort as they survive a kill, and the next start recovers the
    remaining logs. Raises `StoppedWhileStarting`.
    """
    received: list[int] = []

    def stop(number: int, _: object) -> None:
        received.append(number)
        raise StoppedWhileStarting(number)

    before = {number: signal.signal(number, stop) for number in _STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        # The exception may have been raised where Python drops it, as in `__del__`.
        raise StoppedWhileStarting(received[0])


def _log_start(config: BrokerConfig, server: BrokerServer) -> None:
    shared = shared_listener(config)
    if shared is not None:
        logger.warning(
            "clients may claim to be controllers or brokers: they share the listener; "
            "set inter.broker.listener.name, or doorkeeper.controller.listeners",
            extra=fields(listener=shared),
        )
    logger.info(
        "started",
        extra=fields(
            node=config.node_id,
            scheduler=config[DOORKEEPER_SCHEDULER],
            listeners=",".join(map(str, server.listeners)),
            metrics_port=server.metrics_port,
            log_dirs=",".join(config.log_dirs),
        ),
    )


def allow_all_descriptors() -> None:
    """Raise the limit on open files as far as allowed, as the JVM does for Kafka.

    Each log has an open file, and the default limit of shells is 1024.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def keep_freed_memory() -> None:
    """Keep up to 32 MiB of freed memory, for the next large requests.

    By default, glibc returns each large buffer to the kernel, which clears every page
    of the next one: half of the CPU time of producing a megabyte.
    """
    with suppress(AttributeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_TRIM_THRESHOLD, _FREE_BYTES_KEPT)
        mallopt(_M_MMAP_THRESHOLD, _FREE_BYTES_KEPT)


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000
