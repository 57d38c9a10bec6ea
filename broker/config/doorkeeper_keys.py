"""Keys that Kafka does not have: scheduling, controllers, recording, metrics, logs.

All keys begin with ``doorkeeper.``; the keys of admission are in `admission_keys`. The
request classes, from the most to the least urgent, are control, replication, group,
metadata, produce and fetch, admin.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Final

from broker.observation.logs import FORMATS, LEVELS
from broker.protocol.config_key import (
    ConfigType,
    Key,
    boolean,
    integer,
    measures,
    optional_integer,
    optional_text,
    pairs,
    split,
    text,
    words,
)

REQUEST_CLASSES: Final = (
    "control",
    "replication",
    "group",
    "metadata",
    "produce",
    "fetch",
    "admin",
)
LENDINGS: Final = ("both", "to-control", "to-data")


def _scheduler_name(written: str) -> str:
    if not written:
        raise ValueError("the name of a scheduler, or module:factory")
    return written


def by_class(
    key: Key[dict[str, int]], *, complete: bool = False
) -> Key[dict[str, int]]:
    """Return ``key`` for request classes only.

    With ``complete``, classes without a value keep their default.
    """

    def parse(written: str) -> dict[str, int]:
        values = key.parse(written)
        unknown = [name for name in values if name not in REQUEST_CLASSES]
        if unknown:
            known = ", ".join(REQUEST_CLASSES)
            raise ValueError(f"request classes ({known}), not {unknown[0]!r}")
        return {**key.default, **values} if complete else values

    return dataclasses.replace(key, parse=parse)


_QUOTA: Final = re.compile(
    r"(?P<entity>users/[^/]+(?:/clients/[^/]+)?|clients/[^/]+)/"
    r"(?P<key>producer_byte_rate|consumer_byte_rate|request_percentage|"
    r"controller_mutation_rate)=(?P<bound>[0-9]{1,15}(?:\.[0-9]{1,9})?)"
)
_RATE_OF_ADDRESS: Final = re.compile(
    r"(?P<entity>ips/[^/]+)/(?P<key>connection_creation_rate)=(?P<bound>[0-9]{1,9})"
)


def _client_quotas(written: str) -> Mapping[str, Mapping[str, str]]:
    quotas: dict[str, dict[str, str]] = {}
    for item in split(written):
        found = _QUOTA.fullmatch(item) or _RATE_OF_ADDRESS.fullmatch(item)
        if found is None:
            raise ValueError(f"a list of entity/key=number, not {item!r}")
        quotas.setdefault(found["entity"], {})[found["key"]] = found["bound"]
    return quotas


DOORKEEPER_SCHEDULER: Final = text(
    "doorkeeper.scheduler",
    "fifo",
    "The policy: a preset (fifo, planes, planes-lending, priority, wfq), any "
    "registered name, or module:factory.",
    check=_scheduler_name,
)
DOORKEEPER_DATA_SCHEDULER: Final = text(
    "doorkeeper.data.scheduler",
    "fifo",
    "The policy inside the data plane when the planes are separate.",
    check=_scheduler_name,
)
DOORKEEPER_PLANES_LENDING: Final = text(
    "doorkeeper.planes.lending",
    "both",
    "Idle handlers that serve the other plane under planes-lending: the data plane's "
    "(to-control), the control plane's (to-data), or both.",
    choices=LENDINGS,
)
DOORKEEPER_READER: Final = text(
    "doorkeeper.reader",
    "blind",
    "Whether a processor that has no room reads nothing (blind: Kafka), or looks at "
    "a request's api_key before it blocks (class-aware).",
    choices=("blind", "class-aware"),
)
DOORKEEPER_CONTROLLER_LISTENERS: Final = words(
    "doorkeeper.controller.listeners",
    (),
    "The listeners on which controllers are obeyed and brokers may claim to be such. "
    "When empty, those of a member of a cluster for its controller and its brokers; "
    "none of a broker by itself.",
)
DOORKEEPER_CONTROLLER_MERGES: Final = boolean(
    "doorkeeper.controller.merges",
    False,
    "Whether a controller merges the requests queued behind a broker's unanswered one "
    "into one LeaderAndIsr and one UpdateMetadata (LinkedIn's fork of Kafka); "
    "otherwise each is sent in turn.",
)
DOORKEEPER_QUANTUM_US: Final = integer(
    "doorkeeper.quantum.us",
    500,
    "The longest slice of a handler before sockets are polled.",
    low=1,
)
DOORKEEPER_SLICE_MS: Final = integer(
    "doorkeeper.slice.ms",
    10,
    "The CPU time after which a request lets requests in other seats (num.io.threads) "
    "go on, under a policy that never preempts; 0 serves each request to its end.",
    low=0,
)
DOORKEEPER_PRIORITY_AGEING_MS: Final = integer(
    "doorkeeper.priority.ageing.ms",
    1000,
    "A request that waited this long under priority goes first; 0 never. Altered while "
    "the broker runs, it counts at once.",
    low=0,
)
DOORKEEPER_UPKEEP_MS: Final = integer(
    "doorkeeper.upkeep.ms",
    10,
    "Upkeep (compaction, retention, checkpoints) is done in small steps when there is "
    "nothing to serve; after waiting this long a step is done all the same.",
    low=0,
)
DOORKEEPER_LOCK_INHERITANCE: Final = boolean(
    "doorkeeper.lock.inheritance",
    True,
    "Whether a request that waits for a lock lends its turns to the holder: priority "
    "inheritance. Otherwise it waits until the holder's own turns have come.",
)
DOORKEEPER_STARVATION_MS: Final = integer(
    "doorkeeper.starvation.ms",
    5000,
    "A request that waited longer for a handler counts as starved, in the metrics and "
    "in the recording.",
    low=1,
)
DOORKEEPER_WFQ_WEIGHTS: Final = pairs(
    "doorkeeper.wfq.weights",
    {"control": 16, "replication": 4},
    "Weights of flows under wfq, as flow:weight; a flow not named weighs 1. Altered "
    "while the broker runs, they count at once; under other policies that share by "
    "weight, from the next start.",
    low=1,
)
DOORKEEPER_SCHEDULER_OPTIONS: Final = measures(
    "doorkeeper.scheduler.options",
    "A policy's own settings, as name:number (limit.data:0.5); see its description.",
)
DOORKEEPER_WFQ_FLOW: Final = text(
    "doorkeeper.wfq.flow",
    "class",
    "Flows among which wfq shares the handlers.",
    choices=("class", "client.id", "connection"),
)
DOORKEEPER_CLASS_LEVELS: Final = by_class(
    pairs(
        "doorkeeper.class.levels",
        {
            "control": 0,
            "replication": 1,
            "group": 2,
            "metadata": 3,
            "produce": 4,
            "fetch": 4,
            "admin": 5,
        },
        "Priority level of each class, as class:level; 0 is the most urgent.",
    ),
    complete=True,
)
DOORKEEPER_CLIENT_QUOTAS: Final[Key[Mapping[str, Mapping[str, str]]]] = Key(
    name="doorkeeper.client.quotas",
    type=ConfigType.LIST,
    default={},
    parse=_client_quotas,
    doc="Client quotas in force until the entity has one of its own, as "
    "entity/key=number: clients/<default>/request_percentage=25.",
)
DOORKEEPER_RECORD_FILE: Final = optional_text(
    "doorkeeper.record.file",
    "File that records each finished request; none if empty.",
)
DOORKEEPER_METRICS_PORT: Final = optional_integer(
    "doorkeeper.metrics.port",
    "Port of the Prometheus metrics, on 127.0.0.1; none if absent, 0 for any port.",
    low=0,
    high=65_535,
    type=ConfigType.INT,
)
DOORKEEPER_CONSOLE_PORT: Final = optional_integer(
    "doorkeeper.console.port",
    "Port of a web console beside the broker, on 127.0.0.1, which also turns the "
    "metrics on; none if absent, 0 for any port.",
    low=0,
    high=65_535,
    type=ConfigType.INT,
)
DOORKEEPER_RECORD_SAMPLES_MS: Final = integer(
    "doorkeeper.record.samples.ms",
    100,
    "Period of samples of queue depth and idle ratios while recording.",
    low=1,
)
DOORKEEPER_LOG_LEVEL: Final = text(
    "doorkeeper.log.level",
    "warn",
    "The least that is worth a line on standard error.",
    choices=LEVELS,
)
DOORKEEPER_LOG_FORMAT: Final = text(
    "doorkeeper.log.format",
    "text",
    "Format of these lines, for people or for machines.",
    choices=FORMATS,
)
DOORKEEPER_TLS_HANDSHAKE_TIMEOUT_MS: Final = integer(
    "doorkeeper.tls.handshake.timeout.ms",
    10_000,
    "Time for a handshake of TLS; its connection is closed then.",
    low=1,
)
DOORKEEPER_TLS_HANDSHAKES_MAX: Final = integer(
    "doorkeeper.tls.handshakes.max",
    500,
    "Unfinished handshakes of a listener; one more closes the oldest.",
    low=1,
)
DOORKEEPER_TLS_HANDSHAKE_THREADS: Final = integer(
    "doorkeeper.tls.handshake.threads",
    1,
    "Threads that compute handshakes of all listeners.",
    low=1,
)
DOORKEEPER_KAFKA_DEFAULTS: Final = text(
    "doorkeeper.kafka.defaults",
    "4.4",
    "The release of Kafka whose defaults other keys have.",
    choices=("3.9", "4.4"),
)
DOORKEEPER_UNKNOWN_CONFIGS: Final = text(
    "doorkeeper.unknown.configs",
    "refuse",
    "Whether unknown keys stop the start (refuse), or are ignored with a warning that "
    "names them (warn: Kafka).",
    choices=("refuse", "warn"),
)
