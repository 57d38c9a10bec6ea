"""A network processor: a Trio task that reads requests and writes responses.

Follows Kafka's ``SocketServer.Processor``. A processor owns the connections passed to
it by its acceptor, multiplexes them over one selector, and runs the same loop as in
Kafka: new connections, new responses, poll, completed receives, completed sends,
disconnected, excess connections. As in Kafka, it blocks as a whole if its request
channel blocks.

A processor never runs a handler and no scheduler runs a processor.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import trio

from broker.authentication.authenticator import SaslAuthenticator
from broker.network.connection_quotas import ConnectionQuotas
from broker.network.intake import Intake
from broker.network.kafka_channel import KafkaChannel
from broker.network.kafka_selector import Debit, KafkaSelector, Received
from broker.network.memory_pool import MemoryPool
from broker.network.mute import MuteEvent
from broker.network.request_channel import RequestChannel
from broker.network.tls_connection import TlsConnection
from broker.network.transport import READY_MAX, Connection, Selector
from broker.observation.supervisor import Supervisor
from broker.protocol.errors import MalformedFrame
from broker.requests.entitlement import Entitlement
from broker.requests.request import (
    CloseConnection,
    FinalResponse,
    Request,
    Response,
    Throttled,
)
from planes import Task
from planes.clock import NowNs
from planes.cpu_ledger import CpuLedger

# Creates the authenticator of a new connection.
Authenticate: TypeAlias = Callable[[], SaslAuthenticator]

# Kafka's bound on new connections that a processor has not taken over yet.
NEW_CONNECTIONS_MAX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorContext:
    """The shared objects of all processors of a broker.

    ``finished`` are called with each request whose response has been sent or cannot be
    sent. ``idle_ns_max`` None means that idle connections are kept.
    ``authentication_ns_max`` is the largest time until a peer is authenticated.
    ``debit`` bills work for a request outside of its turns, ``ledger`` other work.
    ``supervisor`` counts faults.
    """

    now_ns: NowNs
    intake: Intake
    quotas: ConnectionQuotas
    pool: MemoryPool | None
    finished: Sequence[Callable[[Request], None]]
    frame_bytes_max: int
    idle_ns_max: int | None
    debit: Debit
    ledger: CpuLedger
    authentication_ns_max: int = 30_000_000_000
    supervisor: Supervisor = field(default_factory=Supervisor)


class Processor:
    """Connections of one listener, served by one task.

    ``entitlement`` contains the roles that they may claim. ``authenticate`` None means
    that they need no authentication by SASL.
    """

    def __init__(
        self,
        processor_id: int,
        listener: str,
        entitlement: Entitlement,
        selector: Selector,
        request_channel: RequestChannel,
        context: ProcessorContext,
        authenticate: Authenticate | None = None,
    ) -> None:
        self.processor_id = processor_id
        self._authenticate = authenticate
        self.listener = listener
        self._entitlement = entitlement
        self._idle_ns = 0
        self._waiting_since_ns: int | None = None
        self.expired_connections = 0
        self._request_channel = request_channel
        self._context = context
        self._now_ns = context.now_ns
        self._supervisor = context.supervisor
        self._pool = context.pool
        self._finished = context.finished
        self._selector = KafkaSelector(
            selector,
            pool=context.pool,
            ledger=context.ledger,
            debit=context.debit,
            supervisor=context.supervisor,
        )
        context.quotas.on_excess(self._selector.wakeup)
        self._new: deque[tuple[Connection, int, str]] = deque()
        self._room = trio.lowlevel.ParkingLot()
        self._responses: deque[tuple[Request, Response]] = deque()
        # Frames that were read but not passed on yet, and the refused task.
        self._completed: deque[Received] = deque()
        self._refused: Task | None = None
        self._idle_check_due = False
        self._closed = False
        self._nursery: trio.Nursery | None = None

    def __repr__(self) -> str:
        return (
            f"<processor {self.processor_id} of {self.listener}: "
            f"{len(self._selector)} connections, {len(self._responses)} responses>"
        )

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        return len(self._selector)

    @property
    def response_queue_size(self) -> int:
        """Return the number of responses to be written (``ResponseQueueSize``)."""
        return len(self._responses)

    @property
    def busy(self) -> bool:
        """Return whether a response is still to be written."""
        return bool(self._responses) or self._selector.sending

    def idle_ns(self, now_ns: int) -> int:
        """Return the time for which this processor has waited for its sockets."""
        if self._waiting_since_ns is None:
            return self._idle_ns
        return self._idle_ns + now_ns - self._waiting_since_ns

    # ---- interface ------------------------------------------------------------------

    def offer(self, connection: Connection, connection_id: int, host: str) -> bool:
        """Queue a new connection; False if the queue of new connections is full."""
        if len(self._new) >= NEW_CONNECTIONS_MAX:
            return False
        self._new.append((connection, connection_id, host))
        self._selector.wakeup()
        return True

    async def put(self, connection: Connection, connection_id: int, host: str) -> None:
        """Queue a new connection; wait while the queue is full."""
        while not self.offer(connection, connection_id, host):
            await self._room.park()

    def respond(self, task: Task, response: Response) -> None:
        """Put a response into the response queue.

        A processor that waits for its sockets would wake up and write the response at
        once, as in Kafka, where it has its own thread. The response is therefore
        written in this call, without a wait for the processor's Trio task. While the
        processor is blocked on a full request queue, the response waits.
        """
        request: Request = task.subject  # type: ignore[assignment]  # it made all so
        # Remove the reference, so that task and request form no cycle.
        task.subject = None
        selector = self._selector
        if self._waiting_since_ns is None or self._responses:
            self._responses.append((request, response))
        else:
            task.response_dequeued_ns = task.remote_done_ns
            # The caller is the dispatcher, which a fault of a connection must not end.
            try:
                self._respond(request, response)
                if selector.disconnected:
                    self._process_disconnected()
            except Exception as fault:
                self._supervisor.note("processor", fault)
            if not (selector.to_read or selector.to_write):
                return
        selector.wakeup()

    def poll(self) -> None:
        """Poll the sockets now, unless the processor's task is running or blocked.

        The dispatcher calls this when its planes run empty under load.
        """
        if self._waiting_since_ns is None or self._closed:
            return
        # The caller is the dispatcher, which a fault of a connection must not end.
        try:
            self._poll()
        except Exception as fault:
            self._supervisor.note("processor", fault)
            self._selector.wakeup()

    def _poll(self) -> None:
        assert self._waiting_since_ns is not None
        selector = self._selector
        completed = selector.poll()
        if completed:
            _, _, first_received_ns = completed[0]
            self._completed.extend(completed)
            if not self._process_completed_receives():
                self._idle_ns += first_received_ns - self._waiting_since_ns
                self._waiting_since_ns = None
                selector.wakeup()
                return
            self._waiting_since_ns += self._now_ns() - first_received_ns
        self._end_round()
        if selector.has_work:
            selector.wakeup()

    def stop_reading(self) -> None:
        """Read no further requests; responses are still written."""
        self._selector.stop_reading()

    def expire_idle(self) -> None:
        """Close idle connections in the next round."""
        self._idle_check_due = True
        self._selector.wakeup()

    # ---- the loop -------------------------------------------------------------------

    async def run(
        self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve connections until cancelled, then close them."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            try:
                await self._supervisor.keep("processor", self._serve)
            finally:
                self._close()

    async def _serve(self) -> None:
        """Run rounds; after a fault start a new round, with the same connections."""
        self._waiting_since_ns = None
        while True:
            if self._refused is None:
                self._round()
            if self._refused is not None:
                await self._wait_for_room()
            if self._selector.has_work:
                await trio.lowlevel.checkpoint()
                continue
            self._waiting_since_ns = self._now_ns()
            await self._selector.wait()
            if self._waiting_since_ns is not None:
                self._idle_ns += self._now_ns() - self._waiting_since_ns
                self._waiting_since_ns = None

    def _round(self) -> None:
        """Do all pending work, or stop when the request queue is full."""
        if self._new:
            with self._context.ledger.of("accepting"):
                self._configure_new_connections()
        if self._responses:
            self._process_new_responses()
        self._completed.extend(self._selector.poll())
        if self._process_completed_receives():
            self._end_round()

    async def _wait_for_room(self) -> None:
        """Wait until the request queue has taken the refused request."""
        while self._refused is not None:
            await self._request_channel.send_request(self._refused)
            self._refused = None
            self._context.ledger.begin_ns()
            self._process_completed_receives()
        self._end_round()

    def _end_round(self) -> None:
        """Do the last part of a round, after all frames were passed on."""
        if self._selector.completed_sends:
            self._process_completed_sends()
        if self._idle_check_due:
            self._close_idle()
        if self._context.quotas.exceeded(self.listener):
            self._close_excess_connection()
        if self._selector.disconnected:
            self._process_disconnected()

    def _configure_new_connections(self) -> None:
        """Take over the connections passed by the acceptor."""
        context = self._context
        while self._new:
            connection, connection_id, host = self._new.popleft()
            self._room.unpark()
            channel = KafkaChannel(
                connection,
                connection_id=connection_id,
                host=host,
                listener=self.listener,
                entitlement=self._entitlement,
                frame_bytes_max=context.frame_bytes_max,
                pool=context.pool,
                now_ns=self._now_ns(),
                authenticator=self._authenticate and self._authenticate(),
            )
            if isinstance(connection, TlsConnection):
                channel.principal = connection.principal
            try:
                self._selector.register(channel)
            except Exception as fault:  # epoll's own memory is bounded, too
                connection.close()
                context.quotas.close(self.listener, host)
                self._supervisor.note("processor", fault)

    def _process_new_responses(self) -> None:
        """Begin to write the queued responses."""
        ledger = self._context.ledger
        ledger.begin_ns()
        while self._responses:
            request, response = self._responses.popleft()
            request.task.response_dequeued_ns = self._now_ns()
            self._respond(request, response)
            ended_ns = self._now_ns()
            self._context.debit(request.task, ended_ns - ledger.until_ns)
            ledger.until_ns = ended_ns

    def _respond(self, request: Request, response: Response) -> None:
        """Begin to write one response."""
        channel = self._selector.channel(request.peer.connection_id)
        if channel is None:
            self._finish(request)
            return
        # Nearly all responses are a tuple of pieces.
        if type(response) is not tuple and isinstance(
            response, (Throttled, CloseConnection, FinalResponse)
        ):
            if isinstance(response, CloseConnection):
                self._selector.close(channel)
                return
            if isinstance(response, FinalResponse):
                self._respond_last(channel, request, response)
                return
            self._throttle(channel, response.throttle_ns)
            response = response.pieces
        if not response or self._selector.send(channel, response):
            self._sent(channel, request)

    def _process_completed_receives(self) -> bool:
        """Pass the received requests to the plane; return False if its queue is full.

        The CPU used here is billed to the requests.
        """
        context, respond, completed = self._context, self.respond, self._completed
        ledger, offer = context.ledger, self._request_channel.offer
        until_ns = ledger.until_ns
        while completed:
            channel, frame, received_ns = completed.popleft()
            try:
                request = context.intake.request(frame, channel, received_ns, respond)
            except Exception as fault:  # ends this connection only
                if context.pool is not None:
                    context.pool.release(len(frame))
                self._selector.close(channel)
                if not isinstance(fault, MalformedFrame):
                    self._supervisor.note("processor", fault)
                continue
            channel.request = request
            task = request.task
            task.prior_ns, channel.reading_ns = channel.reading_ns, 0
            if not offer(task):
                self._refused = task
                return False
            # The time of admission; -1 if the request waits next to the queue.
            ended_ns = task.enqueued_ns
            if ended_ns > until_ns:
                task.prior_ns += ended_ns - until_ns
                ledger.until_ns = until_ns = ended_ns
        return True

    def _process_completed_sends(self) -> None:
        """Finish requests whose responses have been written in several steps."""
        completed, self._selector.completed_sends = self._selector.completed_sends, []
        for channel in completed:
            assert channel.request is not None, channel
            self._sent(channel, channel.request)

    def _sent(self, channel: KafkaChannel, request: Request) -> None:
        """Finish a request, and read its channel again."""
        self._finish(request)
        channel.request = None
        channel.active_ns = request.task.response_sent_ns
        if channel.closes_after_send:
            self._selector.close(channel)
            self._selector.wakeup()  # to process the disconnection
            return
        if channel.response_sent():
            self._selector.read_on(channel)

    def _finish(self, request: Request) -> None:
        """Stamp a finished request and pass it to the observers."""
        request.task.response_sent_ns = self._now_ns()
        if self._pool is not None:
            self._pool.release(len(request.frame))
        try:
            for observe in self._finished:
                observe(request)
        except Exception as fault:  # a recording's disk may be full
            self._supervisor.note("observers of requests", fault)

    # ---- ends of connections --------------------------------------------------------

    def _process_disconnected(self) -> None:
        """Remove closed connections from the quotas, and end their parked requests.

        The responses of running handlers will be dropped.
        """
        disconnected, self._selector.disconnected = self._selector.disconnected, []
        for channel in disconnected:
            self._context.quotas.close(self.listener, channel.host)
            request = channel.request
            channel.request = None
            if request is None:
                continue
            if request.task.response_dequeued_ns >= 0:
                self._finish(request)
            else:
                request.abandon()

    def _close_idle(self) -> None:
        """Close connections that have been idle for ``connections.max.idle.ms``."""
        self._idle_check_due = False
        assert self._context.idle_ns_max is not None
        since_ns = self._now_ns() - self._context.idle_ns_max
        closed = self._selector.close_idle(since_ns)
        self.expired_connections += closed
        if closed == READY_MAX:
            self.expire_idle()

    def _close_excess_connection(self) -> None:
        """Close one connection in favour of a protected listener."""
        channel = self._selector.least_recently_active()
        if channel is not None:
            self._selector.close(channel)
            self._selector.wakeup()  # there may be more

    def _close(self) -> None:
        """Close every connection, including those not taken over yet."""
        self._closed = True
        for connection, _, host in self._new:
            connection.close()
            self._context.quotas.close(self.listener, host)
        self._new.clear()
        self._selector.close_all()
        self._process_disconnected()

    def close_unauthenticated(self, since_ns: int) -> bool:
        """Close some unauthenticated connections opened by then.

        Returns whether there may be more.
        """
        closed = self._selector.close_unauthenticated(since_ns)
        if closed:
            self._selector.wakeup()  # to process the disconnections
        return closed == READY_MAX

    # ---- failed authentication ------------------------------------------------------

    def _respond_last(
        self, channel: KafkaChannel, request: Request, response: FinalResponse
    ) -> None:
        """Keep the channel muted for a time, then send the response and close it."""
        assert self._nursery is not None
        self._nursery.start_soon(
            self._end, channel.connection_id, request, response, name="last response"
        )

    async def _end(
        self, connection_id: int, request: Request, response: FinalResponse
    ) -> None:
        with self._supervisor.contained("last response"):
            if response.delay_ns:
                await trio.sleep(response.delay_ns / 1e9)
            channel = self._selector.channel(connection_id)
            if channel is None:
                return
            channel.closes_after_send = True
            if not response.pieces or self._selector.send(channel, response.pieces):
                self._sent(channel, request)
            self._selector.wakeup()

    # ---- throttling (KIP-219) -------------------------------------------------------

    def _throttle(self, channel: KafkaChannel, throttle_ns: int) -> None:
        """Keep the channel muted for a time, although its response is sent at once."""
        channel.handle(MuteEvent.THROTTLE_STARTED)
        assert self._nursery is not None
        self._nursery.start_soon(
            self._end_throttle, channel.connection_id, throttle_ns, name="throttle"
        )

    async def _end_throttle(self, connection_id: int, throttle_ns: int) -> None:
        with self._supervisor.contained("throttle"):
            await trio.sleep(throttle_ns / 1e9)
        channel = self._selector.channel(connection_id)
        if channel is not None:
            channel.handle(MuteEvent.THROTTLE_ENDED)
            if channel.maybe_unmute():
                self._selector.read_on(channel)
            self._selector.wakeup()
