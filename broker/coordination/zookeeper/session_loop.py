"""The sessions of a broker with ZooKeeper, one after the other, until it leaves.

In each session the broker registers, watches the configs, and stands for election. When
the session expires, all of this ends, and a new session begins. Leaderships are kept
until a controller changes them. A failure in a session, from a bug of this broker or an
unexpected znode, ends the session only.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from logging import getLogger
from typing import Final

import trio

from broker.client.signals import Changes, Signal
from broker.coordination.zookeeper.carrying_out import ControllerMoved
from broker.coordination.zookeeper.cluster_discovery import prepare_znodes
from broker.coordination.zookeeper.election import Term, elect, is_controller
from broker.coordination.zookeeper.layout import paths
from broker.coordination.zookeeper.layout.acl_records import CHANGES as ACL_CHANGES
from broker.coordination.zookeeper.layout.broker_records import write_log_dir_event
from broker.coordination.zookeeper.member import Member
from broker.coordination.zookeeper.registration import register
from broker.coordination.zookeeper.retrying import RetryingZnodes
from broker.observation.logs import fields
from broker.protocol.sentinels import NO_EPOCH
from broker.zookeeper.znodes import SessionEvent, SessionExpired, WatchEvent, Znodes

logger = getLogger(__name__)

# Pause after a failed session, to limit the rate of failures.
_PAUSE_S: Final = 1.0
# Longest wait for ZooKeeper when the broker stops.
_FAREWELL_S: Final = 2.0


class SessionLoop:
    """Sessions, and the work in each; ``znodes`` is set during a session."""

    def __init__(self, member: Member, open_session: Callable[[], Znodes]) -> None:
        self._member = member
        self._open_session = open_session
        self.znodes: RetryingZnodes | None = None
        # The czxid of the registration.
        self.broker_epoch = NO_EPOCH
        self._leaving = False
        self._session: Znodes | None = None
        # Notified when a log directory of the broker has failed.
        self.log_dirs_changed = Signal()
        self._changed = Changes()
        self._registration_changed = Signal()
        self._configs_changed = Signal()
        self._acls_changed = Signal()
        self._controller_changed = Signal()

    async def present(self) -> RetryingZnodes:
        """Return the znodes of the present session, or of the next one."""
        while self.znodes is None:
            await self._changed.next()
        return self.znodes

    async def registered(self) -> None:
        """Wait for the first registration.

        A controller may see the registration before this broker receives its epoch. A
        request that is rejected then would not be repeated.
        """
        while self.broker_epoch == NO_EPOCH:
            await self._changed.next()

    async def run(self) -> None:
        """Keep a session until `leave` or cancellation."""
        while not self._leaving:
            session = self._session = self._open_session()
            failed = False
            try:
                async with trio.open_nursery() as nursery:
                    await nursery.start(session.run)
                    nursery.start_soon(self._live, session)
            except* SessionExpired:
                # A call failed before the event of the expiration arrived.
                pass
            except* Exception as faults:  # a new session may succeed
                self._member.meters.failed("session", faults)
                failed = True
            finally:
                self.znodes = None
            if failed:
                await trio.sleep(_PAUSE_S)

    async def leave(self) -> None:
        """End the session for good."""
        self._leaving = True
        if self._session is not None:
            with trio.move_on_after(_FAREWELL_S):
                await self._session.close()

    async def _live(self, session: Znodes) -> None:
        """Run one session; return or raise when it has expired."""
        self.znodes = RetryingZnodes(session)
        self._changed.notify()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._take_part, self.znodes)
            async for event in session.events:
                if event is SessionEvent.EXPIRED:
                    break
                if isinstance(event, WatchEvent):
                    self._take(event)
            if not self._leaving:
                logger.warning("the session with ZooKeeper has expired")
            nursery.cancel_scope.cancel()

    def _take(self, event: WatchEvent) -> None:
        if event.path == paths.CONTROLLER:
            self._controller_changed.notify()
        elif event.path == paths.CONFIG_CHANGES:
            self._configs_changed.notify()
        elif event.path in ACL_CHANGES:
            self._acls_changed.notify()
        elif event.path == paths.broker(self._member.broker_id):
            self._registration_changed.notify()
        if self._member.governing is not None:
            self._member.governing.queue_read(event.path)

    async def _take_part(self, znodes: RetryingZnodes) -> None:
        await prepare_znodes(znodes)
        member = self._member
        # Configs are read before the controller can command the broker to lead.
        await member.configs_may_have_changed(znodes)
        await member.acls_may_have_changed(znodes)
        await self._remove_deleted_topics(znodes)
        self.broker_epoch = await register(
            znodes,
            member.broker_id,
            member.registration(),
            changed=self._registration_changed,
        )
        self._changed.notify()
        logger.info(
            "registered",
            extra=fields(broker=member.broker_id, epoch=self.broker_epoch),
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                _whenever,
                self._configs_changed,
                lambda: member.configs_may_have_changed(znodes),
            )
            nursery.start_soon(
                _whenever,
                self._acls_changed,
                lambda: member.acls_may_have_changed(znodes),
            )
            nursery.start_soon(
                _whenever, self.log_dirs_changed, lambda: self._report_log_dirs(znodes)
            )
            nursery.start_soon(self._stand_for_election, znodes)

    async def _remove_deleted_topics(self, znodes: RetryingZnodes) -> None:
        """Drop topics that were deleted while this broker had no session.

        No controller sends their deletion again. The broker would keep listing them
        and, as controller, would always refuse to create them.
        """
        cache = self._member.broker.metadata_cache
        known = list(cache.topics())
        if known:
            names = frozenset(await znodes.children(paths.TOPICS))
            for topic in known:
                if topic.name not in names:
                    cache.remove(topic)

    async def _report_log_dirs(self, znodes: RetryingZnodes) -> None:
        event = write_log_dir_event(self._member.broker_id)
        await znodes.create(paths.LOG_DIR_EVENT, event, sequential=True)

    async def _stand_for_election(self, znodes: RetryingZnodes) -> None:
        while True:
            member = self._member
            term = await elect(znodes, member.broker_id, member.now_ms())
            if term is None:
                await self._controller_changed.wait()
                continue
            logger.info("elected as controller", extra=fields(epoch=term.epoch))
            try:
                await self._govern(znodes, term)
            except* ControllerMoved:
                # The next election finds the new controller.
                pass
            logger.info("resigned as controller", extra=fields(epoch=term.epoch))

    async def _govern(self, znodes: RetryingZnodes, term: Term) -> None:
        """Run a term until this broker is no longer controller."""
        governing = self._member.governing = self._member.open_term(znodes, term)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(governing.run)
                while await is_controller(znodes):
                    await self._controller_changed.wait()
                nursery.cancel_scope.cancel()
        finally:
            self._member.governing = None


async def _whenever(signal: Signal, act: Callable[[], Awaitable[None]]) -> None:
    while True:
        await signal.wait()
        await act()
