"""The settings shared by the brokers of a cluster on one machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.config import BrokerConfig
from broker.requests.topology import has_control_plane
from broker.zookeeper import connect_string

DATA, CONTROL = "PLAINTEXT", "CONTROLLER"
# Settings of a single broker, which cannot be set for all.
_OWN: Final = (
    *("broker.id", "node.id", "listeners", "log.dirs", "log.dir", "zookeeper.connect"),
)
_REPLICAS_MAX: Final = 3


class ClusterError(Exception):
    """The requested cluster cannot exist."""


def shared_settings(brokers: int, settings: Mapping[str, str]) -> dict[str, str]:
    """Return ``settings`` plus those that make the brokers a cluster.

    :raises ClusterError: if a setting belongs to a single broker.
    :raises ConfigError: if a broker rejects a setting.
    """
    for key in _OWN:
        if key in settings:
            raise ClusterError(f"{key} is each broker's own")
    shared = {**_replicated(brokers), **settings}
    return shared | _control_plane(BrokerConfig.load(None, shared))


def expect_connect_string(text: str) -> None:
    """Raise `ClusterError` unless ``text`` names servers of a ZooKeeper."""
    try:
        connect_string.parse(text)
    except ValueError as error:
        raise ClusterError(
            f"--zookeeper is java or HOST:PORT[,HOST:PORT...][/CHROOT]: {error}"
        ) from error


def listeners(shared: Mapping[str, str], host: str, port: int) -> str:
    """Return the listeners of a broker whose clients connect to ``port``."""
    found = f"{DATA}://{host}:{port}"
    if "control.plane.listener.name" in shared:
        found += f",{CONTROL}://{host}:0"
    return found


def _replicated(brokers: int) -> dict[str, str]:
    """Return the defaults of a cluster, with replicated topics."""
    replicas = str(min(brokers, _REPLICAS_MAX))
    return {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        # One listener for clients and brokers, on a machine of one user.
        "doorkeeper.controller.listeners": f"{DATA},{CONTROL}",
        # All brokers stop together, so partitions have no broker to move to.
        "controlled.shutdown.enable": "false",
    }


def _control_plane(config: BrokerConfig) -> dict[str, str]:
    """Return the listener by which a controller finds control planes, if there are any.

    A broker that adds one automatically cannot know that all others have one too, so
    its controller would connect to the data planes.
    """
    if not has_control_plane(config):
        return {}
    return {
        "control.plane.listener.name": CONTROL,
        "inter.broker.listener.name": DATA,
        "listener.security.protocol.map": f"{DATA}:PLAINTEXT,{CONTROL}:PLAINTEXT",
    }
