"""The channels of one processor: reads, writes and disconnections per poll.

Follows Kafka's ``org.apache.kafka.common.network.Selector``. ``completed_sends`` and
``disconnected`` are filled by ``poll`` and ``send``, and emptied by the processor. A
poll reads at most one frame of a channel, and then mutes the channel.

There are two differences from Kafka. A response is written as soon as it is passed in,
not in the next poll. And because readiness is edge-triggered
(`broker.network.transport`), a muted channel remembers that it is readable, and is read
again when it is unmuted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from logging import getLogger
from typing import TypeAlias

from broker.network.kafka_channel import KafkaChannel
from broker.network.memory_pool import MemoryPool
from broker.network.mute import MuteState
from broker.network.receive import PeerClosed, TlsBytes
from broker.network.transport import (
    BROKEN,
    PEER_FINISHED,
    READABLE,
    READY_MAX,
    WRITABLE,
    Selector,
)
from broker.observation.logs import fields
from broker.observation.supervisor import Supervisor
from broker.protocol.buffer import Piece
from broker.protocol.errors import MalformedFrame
from planes import Task
from planes.cpu_ledger import CpuLedger

logger = getLogger(__name__)

_NOT_MUTED = MuteState.NOT_MUTED
_LOST = BROKEN | PEER_FINISHED

# Bills CPU used for a request outside of its turns.
Debit: TypeAlias = Callable[[Task, int], None]
# A frame with its channel and the time of its completion.
Received: TypeAlias = tuple[KafkaChannel, bytes, int]


class KafkaSelector:
    """Reader and writer of the channels of one processor."""

    def __init__(
        self,
        selector: Selector,
        *,
        pool: MemoryPool | None,
        ledger: CpuLedger,
        debit: Debit,
        supervisor: Supervisor,
    ) -> None:
        self._selector = selector
        # Waits until there is work, or until ``wakeup`` is called; a ``wakeup`` without
        # a waiting task ends the next wait.
        self.wait = selector.wait
        self.wakeup = selector.wakeup
        self._pool = pool
        self._ledger = ledger
        self._now_ns = ledger.now_ns
        self._debit = debit
        self._supervisor = supervisor
        self._by_fileno: dict[int, KafkaChannel] = {}
        self._by_id: dict[int, KafkaChannel] = {}
        # Returns the channel of a connection id, None if it has been closed.
        self.channel: Callable[[int], KafkaChannel | None] = self._by_id.get
        # Channels to read, or to write, without a further event, in order.
        self.to_read: dict[KafkaChannel, None] = {}
        self.to_write: dict[KafkaChannel, None] = {}
        self._short_of_memory: dict[KafkaChannel, None] = {}
        self._reading = True
        self.completed_sends: list[KafkaChannel] = []
        self.disconnected: list[KafkaChannel] = []
        if pool is not None:
            pool.on_available(self._memory_available)

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def has_work(self) -> bool:
        """Return whether ``poll`` has work without waiting."""
        return bool(self.to_read or self.to_write)

    @property
    def sending(self) -> bool:
        """Return whether a response is partly written."""
        return any(channel.send is not None for channel in self._by_id.values())

    def register(self, channel: KafkaChannel) -> None:
        """Add a new connection."""
        self._selector.register(channel.connection)
        self._by_fileno[channel.connection.fileno()] = channel
        self._by_id[channel.connection_id] = channel

    # ---- reading ----------------------------------------------------------------

    def poll(self) -> list[Received]:
        """Read and write the ready channels; return the frames with their times.

        Reading is billed to the request being read, once it is complete, and writing to
        the request of the response.
        """
        completed: list[Received] = []
        self._ledger.begin_ns()
        if self.to_write or self.to_read:
            self._go_on(completed)
        for fileno, events in self._selector.poll():
            channel = self._by_fileno.get(fileno)
            if channel is None:
                continue
            if events & _LOST and self._lost(channel, events):
                continue
            if events & WRITABLE and channel.send is not None:
                self._write_on(channel)
            if events & READABLE:
                channel.receive.readable = True
                if channel.mute_state is _NOT_MUTED:
                    self._read(channel, completed)
        return completed

    def _go_on(self, completed: list[Received]) -> None:
        """Continue the reads and writes that the last poll left unfinished."""
        writing, self.to_write = self.to_write, {}
        for channel in writing:
            if channel.send is not None:
                self._write_on(channel)
        reading, self.to_read = self.to_read, {}
        for channel in reading:
            self._read(channel, completed)

    def stop_reading(self) -> None:
        """Read no further requests."""
        self._reading = False
        self.to_read.clear()

    def read_on(self, channel: KafkaChannel) -> None:
        """Schedule a read of an unmuted channel, if it is readable."""
        receive = channel.receive
        if (receive.readable or receive.buffered) and self._reading:
            self.to_read[channel] = None

    def _read(self, channel: KafkaChannel, completed: list[Received]) -> None:
        """Read the channel until a frame is complete or no more bytes are available."""
        if not self._reading:
            return
        receive = channel.receive
        pool = self._pool
        if pool is not None and pool.exhausted and not receive.inside_frame:
            self._short_of_memory[channel] = None
            return
        try:
            frame = receive.next_frame()
        except TlsBytes:
            logger.warning(
                "bytes of TLS at a listener without it; their connection is closed",
                extra=fields(peer=channel.host, listener=channel.listener),
            )
            self.close(channel)
            return
        except (PeerClosed, MalformedFrame, OSError):
            self.close(channel)
            return
        except MemoryError:
            # The announced size is allocated at once and may exceed the free memory.
            logger.warning(
                "there is no memory for a request; its connection is closed",
                extra=fields(peer=channel.host, listener=channel.listener),
            )
            self.close(channel)
            return
        except Exception as fault:  # ends this connection only
            self.close(channel)
            self._supervisor.note("processor", fault)
            return
        ledger = self._ledger
        channel.active_ns = now_ns = self._now_ns()
        channel.reading_ns += now_ns - ledger.until_ns
        ledger.until_ns = now_ns
        if frame is not None:
            channel.mute()
            completed.append((channel, frame, now_ns))
        elif receive.readable:
            self.to_read[channel] = None

    def _memory_available(self) -> None:
        """Resume reading the channels that waited for memory."""
        if self._short_of_memory:
            self.to_read.update(self._short_of_memory)
            self._short_of_memory.clear()
            self._selector.wakeup()

    def _lost(self, channel: KafkaChannel, events: int) -> bool:
        """Close a channel that no response can reach; return whether it was closed.

        A peer that has only finished sending may still read, so its requests are
        served, and the channel is closed when all bytes are read. A parked request is
        ended, since a client that has closed its socket cannot be distinguished.
        """
        request = channel.request
        if events & BROKEN or (request is not None and request.end_wait is not None):
            self.close(channel)
            return True
        channel.receive.peer_finished = True
        return False

    # ---- writing ----------------------------------------------------------------

    def send(self, channel: KafkaChannel, pieces: Sequence[Piece]) -> bool:
        """Write a response; return True if the socket has taken all of it at once.

        Otherwise the channel will be in ``completed_sends``, or in ``disconnected``.
        """
        sent_bytes = 0
        first = pieces[0]
        if len(pieces) == 1 and isinstance(first, (bytes, memoryview)):
            try:
                sent_bytes = channel.connection.send(first)
            except BlockingIOError:
                pass
            except OSError:
                self.close(channel)
                return False
            if sent_bytes == len(first):
                return True
        channel.start_send(self._selector, pieces, sent_bytes)
        return self._write(channel)

    def _write_on(self, channel: KafkaChannel) -> None:
        """Continue to write a response."""
        request = channel.request
        assert request is not None, channel
        if self._write(channel):
            self.completed_sends.append(channel)
        now_ns = self._now_ns()
        self._debit(request.task, now_ns - self._ledger.until_ns)
        self._ledger.until_ns = now_ns

    def _write(self, channel: KafkaChannel) -> bool:
        """Continue to write the channel's response; return True if it is complete."""
        send = channel.send
        assert send is not None, channel
        try:
            more = send.write()
        except OSError:
            self.close(channel)
            return False
        except Exception as fault:  # ends this connection only
            self.close(channel)
            self._supervisor.note("processor", fault)
            return False
        channel.active_ns = self._now_ns()
        if send.done:
            channel.send = None
            return True
        if more:
            self.to_write[channel] = None
        return False

    # ---- the end of a channel -----------------------------------------------------

    def close(self, channel: KafkaChannel) -> None:
        """Close the connection and remove the channel."""
        if self._by_id.pop(channel.connection_id, None) is None:
            return
        del self._by_fileno[channel.connection.fileno()]
        for waiting in (self.to_read, self.to_write, self._short_of_memory):
            waiting.pop(channel, None)
        self._selector.unregister(channel.connection)
        channel.connection.close()
        channel.receive.abandon()
        self.disconnected.append(channel)

    def close_all(self) -> None:
        """Close every channel, and the selector."""
        for channel in list(self._by_id.values()):
            self.close(channel)
        self._selector.close()

    def close_idle(self, since_ns: int) -> int:
        """Close some channels that have been idle since then; return their number."""
        idle = (each for each in self._by_id.values() if each.active_ns <= since_ns)
        return self._close_some(idle)

    def _close_some(self, channels: Iterable[KafkaChannel]) -> int:
        some = tuple(islice(channels, READY_MAX))
        for channel in some:
            self.close(channel)
        return len(some)

    def close_unauthenticated(self, since_ns: int) -> int:
        """Close some unauthenticated channels opened by then; return their number."""
        late = (
            each
            for each in self._by_id.values()
            if each.opened_ns <= since_ns
            and each.authenticator is not None
            and not each.authenticator.has_authenticated
        )
        return self._close_some(late)

    def least_recently_active(self) -> KafkaChannel | None:
        """Return the channel to close first if there are too many."""
        return min(
            self._by_id.values(), key=lambda channel: channel.active_ns, default=None
        )

    def check(self) -> None:
        """Assert that all tables contain the same channels."""
        assert set(self._by_id.values()) == set(self._by_fileno.values())
        open_channels = set(self._by_id.values())
        for waiting in (self.to_read, self.to_write, self._short_of_memory):
            assert waiting.keys() <= open_channels
