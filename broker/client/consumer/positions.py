"""Initial positions: a task that finds the positions of partitions that have none.

The position is the committed offset of the group, otherwise ``auto.offset.reset``.
After a seek to an end, or a position out of range, it is found by a timestamp. Kafka's
``updateFetchPositions`` and ``resetPositionsIfNeeded``. A response is ignored after a
seek, or a loss of the partition, since its request.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

import trio

from broker.client.backoff import retry_backoff
from broker.client.client_config import ClientConfig
from broker.client.consumer.consumer_commits import Commits
from broker.client.consumer.consumer_config import AUTO_OFFSET_RESET
from broker.client.consumer.offset_calls import OffsetCalls
from broker.client.consumer.subscription_state import (
    EARLIEST,
    LATEST,
    PartitionState,
    SubscriptionState,
)
from broker.client.retriable_errors import is_retriable
from broker.client.signals import Signal
from broker.protocol.errors import ErrorCode, KafkaError

_POLICIES = {"earliest": EARLIEST, "latest": LATEST, "none": None}


class Positions:
    """Finds the positions of partitions without one."""

    def __init__(
        self,
        config: ClientConfig,
        subscriptions: SubscriptionState,
        offsets: OffsetCalls,
        commits: Commits | None,
        rng: random.Random,
    ) -> None:
        self._subscriptions = subscriptions
        self._offsets = offsets
        self._commits = commits
        self._policy = _POLICIES[config[AUTO_OFFSET_RESET]]
        self._backoff = retry_backoff(config, rng)
        self._wake = Signal()
        self.on_position: Callable[[], None] = _do_nothing

    def wake(self) -> None:
        """Examine all partitions again, after an assignment or a reset."""
        self._wake.notify()

    def out_of_range(self, state: PartitionState) -> None:
        """Handle a position outside the log by ``auto.offset.reset``."""
        if self._policy is None:
            state.failure = KafkaError(
                ErrorCode.offset_out_of_range,
                f"{state.partition} has no offset {state.position}",
            )
        else:
            state.reset(self._policy)
            self.wake()

    async def run(self) -> None:
        """Find positions until cancelled."""
        failures = 0
        while True:
            missing = self._missing()
            if not missing:
                failures = 0
                await self._wake.wait()
                continue
            try:
                await self._find_committed(each for each in missing if _is_fresh(each))
                await self._find_by_time(self._missing())
            except KafkaError as error:
                if not is_retriable(error.code):
                    for state in self._missing():
                        state.failure = error
            self.on_position()
            if self._missing():
                failures += 1
                wait_s = self._backoff.after(failures)
                await self._wake.wait(trio.current_time() + wait_s)

    def _missing(self) -> list[PartitionState]:
        return [
            each
            for each in self._subscriptions.states
            if each.position is None and each.failure is None
        ]

    async def _find_committed(self, fresh: Iterable[PartitionState]) -> None:
        unset = {each.partition: (each, each.version) for each in fresh}
        if not unset:
            return
        found = {}
        if self._commits is not None:
            found = await self._commits.committed(unset)
        for partition, (state, version) in unset.items():
            if not self._subscriptions.is_current(state, version):
                continue
            if partition in found:
                state.seek(found[partition].offset)
            elif self._policy is None:
                state.failure = KafkaError(
                    ErrorCode.offset_out_of_range,
                    f"{partition} has no committed offset to begin at",
                )
            else:
                state.reset(self._policy)

    async def _find_by_time(self, states: Iterable[PartitionState]) -> None:
        unset = {
            each.partition: (each, each.version, each.reset_to)
            for each in states
            if each.reset_to is not None
        }
        if not unset:
            return
        wanted = {name: to for name, (_, _, to) in unset.items() if to is not None}
        for partition, found in (await self._offsets.list_offsets(wanted)).items():
            state, version, _ = unset[partition]
            if self._subscriptions.is_current(state, version):
                state.seek(found.offset)


def _is_fresh(state: PartitionState) -> bool:
    """Return whether a partition has no reset target yet."""
    return state.reset_to is None


def _do_nothing() -> None:
    """Do nothing: no task waits for positions."""
