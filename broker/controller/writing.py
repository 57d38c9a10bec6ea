"""Changing leaderships in ZooKeeper, though somebody else may write them first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from broker.controller.context import ControllerContext
from broker.controller.decisions import Decisions, WriteLeaderships, pausing
from broker.controller.leadership import Leadership
from broker.protocol.topic_partition import TopicPartition


def change_leaderships(
    context: ControllerContext,
    keys: Iterable[TopicPartition],
    change: Callable[[TopicPartition, Leadership], Leadership | None],
) -> Decisions[dict[TopicPartition, Leadership]]:
    """Write what ``change`` makes of each partition's leadership.

    Where a leader has written its ISR in between (as before KIP-497), ``change`` is
    asked again with what is there. None, or a partition without a state, is left out;
    so is what another controller has written. Returns what was changed.
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
        remaining = [key for key in wanted if key not in written]
    return changed


def write_leaderships(
    context: ControllerContext, wanted: Mapping[TopicPartition, Leadership]
) -> Decisions[dict[TopicPartition, Leadership]]:
    """Try once to write leaderships; learn in any case what is there.

    Returns those that were written.
    """
    if not wanted:
        return {}
    found = yield WriteLeaderships(wanted)
    for count, key in enumerate(wanted, 1):
        there = found[key]
        if there is None:
            context.drop_leadership(key)
        else:
            context.put_leadership(key, there)
        yield from pausing(count)
    return {key: it for key, it in wanted.items() if found[key] == it}
