"""Znodes of brokers: live brokers, the controller, allocated ids.

Layouts and versions are those of Kafka 3.9's ``ZkData``. Timestamps are milliseconds,
written as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from broker.config import Listener
from broker.config.listeners import SECURITY_PROTOCOLS, parse_listeners
from broker.coordination.zookeeper.layout.json_text import reads, write_json

_PLAINTEXT: Final = "PLAINTEXT"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRecord:
    """A broker's registration under /brokers/ids: its addresses, and its rack."""

    listeners: tuple[Listener, ...]
    rack: str | None = None


def write_broker(record: BrokerRecord, now_ms: int) -> bytes:
    """Return the data of /brokers/ids/N, version 5.

    ``host`` and ``port`` serve old clients: those of a PLAINTEXT listener, if any.
    """
    plain = next((it for it in record.listeners if it.name == _PLAINTEXT), None)
    fields: dict[str, Any] = {
        "version": 5,
        "host": plain.host if plain else None,
        "port": plain.port if plain else -1,
        "jmx_port": -1,
        "timestamp": str(now_ms),
        "endpoints": [str(each) for each in record.listeners],
        "listener_security_protocol_map": {
            each.name: each.security_protocol for each in record.listeners
        },
        "features": {},
    }
    if record.rack is not None:
        fields["rack"] = record.rack
    return write_json(fields)


@reads("a broker's registration", 1, 2, 3, 4, 5)
def read_broker(found: dict[str, Any]) -> BrokerRecord:
    """Return a broker's registration.

    Version 1 has one address; versions 2 and 3 have no listener names.
    """
    if int(found["version"]) == 1:
        only = Listener(
            name=_PLAINTEXT,
            host=found["host"],
            port=int(found["port"]),
            security_protocol=_PLAINTEXT,
        )
        return BrokerRecord(listeners=(only,))
    names = {each: each for each in SECURITY_PROTOCOLS}
    protocols = found.get("listener_security_protocol_map", names)
    written = ",".join(found["endpoints"])
    listeners = parse_listeners("endpoints", written, protocols, distinct_ports=False)
    return BrokerRecord(listeners=listeners, rack=found.get("rack"))


def write_controller(broker_id: int, now_ms: int) -> bytes:
    """Return the data of /controller, version 2, which marks a ZooKeeper controller."""
    return write_json(
        {
            "version": 2,
            "brokerid": broker_id,
            "timestamp": str(now_ms),
            "kraftControllerEpoch": -1,
        }
    )


@reads("the controller's broker id", 1, 2)
def read_controller(found: dict[str, Any]) -> int:
    """Return the id of the broker that is controller."""
    return int(found["brokerid"])


def write_cluster_id(cluster_id: str) -> bytes:
    """Return the data of /cluster/id, with its version as text."""
    return write_json({"version": "1", "id": cluster_id})


@reads("a cluster's id", 1)
def read_cluster_id(found: dict[str, Any]) -> str:
    """Return the cluster's id."""
    return str(found["id"])


class ProducerIdBlock(NamedTuple):
    """The last allocated block of producer ids, and its broker."""

    broker_id: int
    first: int
    last: int


def write_producer_ids(block: ProducerIdBlock) -> bytes:
    """Return the data of /latest_producer_id_block, with inclusive ends as text."""
    return write_json(
        {
            "version": 1,
            "broker": block.broker_id,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )


@reads("a block of producer ids", 1)
def read_producer_ids(found: dict[str, Any]) -> ProducerIdBlock:
    """Return the block."""
    first, last = int(found["block_start"]), int(found["block_end"])
    return ProducerIdBlock(int(found["broker"]), first, last)


@reads("a broker whose log directories changed", 1)
def read_log_dir_event(found: dict[str, Any]) -> int:
    """Return the id of a broker whose replicas the controller must query again."""
    return int(found["broker"])


def write_log_dir_event(broker_id: int) -> bytes:
    """Return the data of a znode below /log_dir_event_notification; 1 is a failure."""
    return write_json({"version": 1, "broker": broker_id, "event": 1})


def write_config(configs: Mapping[str, str]) -> bytes:
    """Return the data of an entity's configs."""
    return write_json({"version": 1, "config": dict(configs)})


@reads("an entity's configs", 1)
def read_config(found: dict[str, Any]) -> dict[str, str]:
    """Return the configs."""
    return {str(key): str(value) for key, value in found["config"].items()}


def write_config_change(entity: str) -> bytes:
    """Return the data of a notification about ``topics/T`` or ``brokers/N``."""
    return write_json({"version": 2, "entity_path": entity})


@reads("whose configs have changed", 1, 2)
def read_config_change(found: dict[str, Any]) -> str:
    """Return the entity of a notification, as ``topics/T`` or ``brokers/N``."""
    if int(found["version"]) == 1:
        return f"{found['entity_type']}/{found['entity_name']}"
    return str(found["entity_path"])
