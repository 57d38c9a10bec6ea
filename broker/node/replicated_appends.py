"""Batches that the broker itself appends, replicated as with acks=all.

The broker acts as a client of its own replicas: a batch waits in the produce purgatory
for the in-sync replicas, up to a time-out. Under ``flush.messages`` or ``flush.ms`` a
batch also waits for its flush, and later batches wait for earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from broker.cluster.delayed.delayed_produce import DelayedProduce
from broker.cluster.delayed.required import Required
from broker.cluster.partition import Partition
from broker.cluster.replica_manager import ReplicaManager
from broker.log.log import Appended
from broker.node.flush_shell import QueuedFlushes
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.topic_partition import TopicPartition


class ReplicatedAppends:
    """Appends to partitions led by this broker, with a callback for the outcome."""

    def __init__(
        self,
        replicas: ReplicaManager,
        flushes: QueuedFlushes,
        now_ns: Callable[[], int],
    ) -> None:
        self._replicas = replicas
        self._flushes = flushes
        self._now_ns = now_ns

    def append(
        self,
        key: TopicPartition,
        append: Callable[[Partition], Appended],
        timeout_ns: int,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Append by ``append``; ``done`` is called when all in-sync replicas have it.

        ``done`` is called exactly once, possibly before this method returns. Successful
        appends to a partition are reported in order. This method raises nothing.
        """
        deadline_ns = self._now_ns() + timeout_ns
        try:
            led = self._replicas.leader(key)
            appended = append(led)
        except KafkaError as refused:
            done(refused.code)
            return
        self._replicas.note_append(led)
        required = Required.by(led.log, appended.last_offset)
        wait = partial(self._wait, key, led, required, deadline_ns, done)
        if not self._flushes.is_busy(led.log) and not led.withheld.any:
            wait()
            return

        def flushed(fault: KafkaError | None) -> None:
            if fault is None:
                self._replicas.note_flush(led)
                wait()
            else:
                done(fault.code)

        self._flushes.add(led.log, flushed)

    def _wait(
        self,
        key: TopicPartition,
        led: Partition,
        required: Required,
        deadline_ns: int,
        done: Callable[[ErrorCode], None],
    ) -> None:
        delayed = DelayedProduce({key: led}, {key: required})

        def settle() -> None:
            done(delayed.error_of(key))

        purgatory = self._replicas.produce_purgatory
        if purgatory.watch(delayed, [key], deadline_ns, settle) is None:
            settle()
