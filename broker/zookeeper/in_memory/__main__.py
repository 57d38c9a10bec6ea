"""A ZooKeeper server as a process: ``python -m broker.zookeeper.in_memory``.

For clusters on one machine: a single server with its state in memory, durable on disk,
without authentication. The process prints a line when the server listens, and ends on
SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Final

import trio

from broker.disk.files import RealStorage
from broker.zookeeper.in_memory.service import ZooKeeperService
from broker.zookeeper.in_memory.tcp import TcpListener
from broker.zookeeper.in_memory.zookeeper_journal import Journal, JournalError
from broker.zookeeper.in_memory.zookeeper_server import ZooKeeperServer

_NS_PER_MS: Final = 1_000_000


def main() -> None:
    """Serve until a signal; an unusable directory or port ends the process."""
    options = _options()
    try:
        journal = Journal(RealStorage(), options.data)
        if cut := journal.recovered.cut_bytes:
            sys.stderr.write(f"cut {cut} bytes of an unfinished write from the log\n")
        service = ZooKeeperService(
            now_ns=time.monotonic_ns,
            # Source of session passwords.
            rng=random.SystemRandom(),
            tick_ms=options.tick_ms,
            start_ms=(time.time_ns() - time.monotonic_ns()) // _NS_PER_MS,
            journal=journal,
        )
        listener = TcpListener(options.host, options.port)
    except (JournalError, OSError) as error:
        sys.exit(f"ZooKeeper in memory cannot start: {error}")
    trio.run(_serve, service, listener, options.host)


async def _serve(service: ZooKeeperService, listener: TcpListener, host: str) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            server = ZooKeeperServer(service, lambda: listener, call=_in_thread)
            await nursery.start(server.run)
            sys.stdout.write(f"listening on {host}:{listener.port}\n")
            sys.stdout.flush()
            async for _ in signals:
                nursery.cancel_scope.cancel()


async def _in_thread(wait: Callable[[], None]) -> None:
    await trio.to_thread.run_sync(wait)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tick-ms", type=int, default=3000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
