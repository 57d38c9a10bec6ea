"""A real broker on a real disk that is full and later has free space again.

The disk is a small tmpfs in the broker's own mount namespace, which needs no privilege
where user namespaces are allowed. The test reaches it through ``/proc``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.live.broker_process import BrokerProcess
from tests.live.verifying import PATIENT

pytestmark = pytest.mark.live

DISK_BYTES = 4 << 20
_UNSHARE = ["unshare", "--user", "--map-root-user", "--mount", "--"]


def _small_disk(path: Path) -> list[str]:
    """Return a command prefix that mounts a small disk at ``path`` for its program."""
    mount = f'mount -t tmpfs -o size={DISK_BYTES} none "$0" && exec "$@"'
    return [*_UNSHARE, "sh", "-c", mount, str(path)]


@pytest.fixture
def small_disk(tmp_path: Path) -> list[str]:
    path = tmp_path / "data"
    path.mkdir()
    command = _small_disk(path)
    if (
        shutil.which("unshare") is None
        or subprocess.run(
            [*command, "true"], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("no user namespaces here: a small disk cannot be mounted")
    return command


@contextmanager
def full(disk: Path) -> Iterator[None]:
    """Fill a disk completely during the body."""
    filler = disk / "filler"
    with pytest.raises(OSError, match="No space left on device"):
        _write_endlessly(filler)
    yield
    # The disk disappears with its last process.
    filler.unlink(missing_ok=True)


def _write_endlessly(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


class Sender:
    """Sends numbered records, each until its confirmation or failure."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.confirmed: dict[int, int] = {}
        self.failed: dict[int, Any] = {}
        self._sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "linger.ms": 0,
                "message.timeout.ms": 1000,
                **PATIENT,
            }
        )

    def send(self, count: int) -> None:
        """Send records of one kilobyte each."""
        for number in range(self._sent, self._sent + count):
            value = b"%d " % number + bytes(1000)
            self._producer.produce("t", value, partition=0, on_delivery=self._told)
        self._sent += count
        assert self._producer.flush(10) == 0

    def _told(self, error: Any, message: Any) -> None:
        number = int(message.value().split(b" ")[0])
        if error is None:
            self.confirmed[number] = message.offset()
        else:
            self.failed[number] = error


def records_of(broker: BrokerProcess) -> dict[int, int]:
    """Read the whole topic; return the offset of each number."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            # A full disk refuses commits as well.
            "enable.auto.commit": False,
        }
    )
    _, end = consumer.get_watermark_offsets(TopicPartition("t", 0), 10)
    consumer.assign([TopicPartition("t", 0, 0)])
    found: dict[int, int] = {}
    while len(found) < end:
        for message in consumer.consume(1000, timeout=1):
            assert message.error() is None
            found[int(message.value().split(b" ")[0])] = message.offset()
    consumer.close()
    return found


def test_a_full_disk_refuses_records_and_forgets_none(
    tmp_path: Path, small_disk: list[str]
) -> None:
    broker = BrokerProcess(tmp_path, before=small_disk, log_flush_interval_messages="1")
    disk = Path(f"/proc/{broker.pid}/root") / (tmp_path / "data").relative_to("/")
    sender = Sender(broker)
    sender.send(100)
    assert len(sender.confirmed) == 100
    for _ in range(2):
        confirmed, failed = len(sender.confirmed), len(sender.failed)
        with full(disk):
            sender.send(50)
            assert len(sender.failed) > failed, "nothing was refused"
            # Consumers are served even while the disk is full.
            assert sender.confirmed.items() <= records_of(broker).items()
        sender.send(50)
        assert len(sender.confirmed) >= confirmed + 50, "it did not recover"
    codes = {error.code() for error in sender.failed.values()}
    assert codes == {KafkaError._MSG_TIMED_OUT}, codes
    found = records_of(broker)
    assert sender.confirmed.items() <= found.items()
    with full(disk):
        assert broker.terminate() == 1
    words = broker.errors()
    assert "the logs need recovery" in words
    assert "No space left on device" in words
    assert "Traceback" not in words


def test_a_disk_full_from_the_start_is_named(
    tmp_path: Path, small_disk: list[str]
) -> None:
    fill = f'head -c {2 * DISK_BYTES} /dev/zero > "$0"/filler; exec "$@"'
    command = [*small_disk, "sh", "-c", fill, str(tmp_path / "data")]
    command += BrokerProcess.command({"log.dirs": str(tmp_path / "data" / "logs")})
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    assert ended.returncode == 2, ended
    assert "log.dirs" in ended.stderr
    assert "No space left on device" in ended.stderr
