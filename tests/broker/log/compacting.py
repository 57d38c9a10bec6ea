"""A log that compacts: written to, compacted and read back."""

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
    log.compact(now_ms, log.log_end_offset if up_to is None else up_to)
    log.check()
    return log


def records(log):
    return [(offset, key, value) for offset, _, key, value in decoded(everything(log))]
