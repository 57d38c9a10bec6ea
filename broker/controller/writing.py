"""Changes of leaderships in ZooKeeper, with retries after concurrent writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from broker.controller.context import ControllerContext
from broker.controller.decisions import Decisions, WriteLeaderships, pausing, scan
from broker.controller.leadership import Leadership
from broker.protocol.topic_partition import TopicPartition


def change_leaderships(
    context: ControllerContext,
    keys: Iterable[TopicPartition],
    change: Callable[[TopicPartition, Leadership], Leadership | None],
) -> Decisions[dict[TopicPartition, Leadership]]:
    """Write the result of ``change`` for each partition's leadership.

    If a leader has written its ISR in between (as before KIP-497), ``change`` is called
    again with the current state. A partition is skipped if ``change`` returns None, if
    it has no state, or if its state is that of a later controller. Returns the changed
    leaderships.
    """
    changed: dict[TopicPartition, Leadership] = {}
    remaining = list(keys)
    while remaining:
        wanted: dict[TopicPartition, Leadership] = {}
        for count, key in enumerate(remaining, 1):
            before = context.leadership(key)
            if before is not None and before.controller_epoch <= context.epoch:
                after = change(key, before)
                if after is not None:
                    wanted[key] = after
            yield from pausing(count)
        written = yield from write_leaderships(context, wanted)
        changed.update(written)
        remaining = yield from scan(wanted, lambda it: it not in changed)
    return changed


def write_leaderships(
    context: ControllerContext, wanted: Mapping[TopicPartition, Leadership]
) -> Decisions[dict[TopicPartition, Leadership]]:
    """Try once to write leaderships; return the written ones.

    The context is updated with the leaderships in ZooKeeper in any case.
    """
    if not wanted:
        return {}
    found = yield WriteLeaderships(wanted)
    written: dict[TopicPartition, Leadership] = {}
    for count, (key, leadership) in enumerate(wanted.items(), 1):
        there = found[key]
        if there is None:
            context.drop_leadership(key)
        else:
            context.put_leadership(key, there)
            if there == leadership:
                written[key] = there
        yield from pausing(count)
    return written
