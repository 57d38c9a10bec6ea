"""Helpers that fill, compact and read back a compacted log."""

from broker.log.steps import run
from broker.log.upkeep import cleaner
from tests.broker.log.witness import NOW_MS, batch, decoded, everything

CONFIG = {
    "cleanup_policy": frozenset({"compact"}),
    "segment_bytes": 500,
    "index_interval_bytes": 100,
    "delete_retention_ms": 1000,
}


def put(log, *pairs, codec=0, **producer):
    keys, values = zip(*pairs, strict=True)
    sent = batch(list(values), keys=list(keys), codec=codec, **producer)
    return log.append(sent, 0, NOW_MS)


def compacted(log, now_ms=NOW_MS, up_to=None):
    up_to = log.log_end_offset if up_to is None else up_to
    run(cleaner.compaction(log, now_ms, up_to))
    log.check()
    return log


def records(log):
    return [(offset, key, value) for offset, _, key, value in decoded(everything(log))]


def advance(work, steps):
    """Run ``steps`` steps of ``work`` with their calls; return whether it goes on."""
    for _ in range(steps):
        try:
            call = next(work)
        except StopIteration:
            return False
        if call is not None:
            call()
    return True
