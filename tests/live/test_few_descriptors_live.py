"""A real broker without free descriptors, and its recovery.

The limit applies to the broker only; idle connections use up its descriptors.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.live.broker_process import BrokerProcess
from tests.live.test_full_disk_live import Sender, records_of

pytestmark = [pytest.mark.live, pytest.mark.slow]

DESCRIPTORS = 80
_LIMITED = ["sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "sh"]


@contextmanager
def all_taken(broker: BrokerProcess) -> Iterator[list[socket.socket]]:
    """Open more connections than the broker has descriptors; close them at the end."""
    with ExitStack() as stack:
        address = "127.0.0.1", broker.port
        hogs = [
            stack.enter_context(socket.create_connection(address))
            for _ in range(DESCRIPTORS)
        ]
        _until(lambda: _in_use(broker) == DESCRIPTORS)
        yield hogs


def _in_use(broker: BrokerProcess) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


def _cpu_s(broker: BrokerProcess) -> float:
    """Return the CPU time of the process."""
    stat = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")


def _until(is_so) -> None:  # type: ignore[no-untyped-def] # a predicate
    for _ in range(100):
        if is_so():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come to that")


def test_without_descriptors_nothing_is_lost_and_the_cpu_rests(tmp_path: Path) -> None:
    """Logs roll at every second batch, and flushes need additional descriptors."""
    broker = BrokerProcess(
        tmp_path,
        before=_LIMITED,
        log_segment_bytes="100000",
        offsets_topic_num_partitions="1",
        log_flush_interval_messages="1",
    )
    sender = Sender(broker)
    sender.send(30)
    assert len(sender.confirmed) == 30
    for _ in range(2):
        confirmed, failed = len(sender.confirmed), len(sender.failed)
        with all_taken(broker):
            used_s = _cpu_s(broker)
            time.sleep(2)
            assert _cpu_s(broker) - used_s < 1, "it spins"
            # More than a segment, so the log has to roll.
            sender.send(60)
            sender.send(60)
            assert len(sender.failed) > failed, "no descriptor was short"
        _until(lambda: _in_use(broker) < DESCRIPTORS // 2)
        sender.send(30)
        assert len(sender.confirmed) >= confirmed + 30, "it did not recover"
    assert sender.confirmed.items() <= records_of(broker).items()
    broker.kill()
    broker.start()
    assert sender.confirmed.items() <= records_of(broker).items()
    broker.stop()
    assert "Traceback" not in broker.errors()
