"""Brokers and clusters of a test, started and stopped by a ``with`` block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Self, TypedDict, Unpack

from broker.client.consumer.consumer_record import ConsumerRecord
from broker.config import DOORKEEPER_SCHEDULER
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from doorkeeper.testing.hosting import BrokerHost, HostSettings
from doorkeeper.testing.links import Link, ProcessLink, ThreadLink
from doorkeeper.testing.node import HOST
from doorkeeper.testing.received import ReceivedRequest
from doorkeeper.testing.request_faults import FaultRule


class Filter(TypedDict, total=False):
    """Selects the requests that a fault affects: those that match every given key.

    ``times`` is the number of affected requests.
    """

    topic: str
    client_id: str
    times: int


class Fault:
    """A fault for requests of one broker; the end of a ``with`` block removes it."""

    def __init__(self, link: Link, broker: int, number: int) -> None:
        self._link = link
        self._broker = broker
        self._number = number

    @property
    def hits(self) -> int:
        """Number of requests that the fault has affected."""
        return self._link.call(BrokerHost.hits, self._broker, self._number)

    def remove(self) -> None:
        """Remove the fault."""
        self._link.call(BrokerHost.remove_fault, self._broker, self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class _Topics:
    """Topics of a broker or a cluster."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replicas: int = -1,
        config: Mapping[str, object] | None = None,
    ) -> str:
        """Create a topic, and return its name when all partitions have leaders.

        :raises KafkaError: if the broker refuses.
        """
        configs = _as_strings(config)
        self._link.call(BrokerHost.create_topic, name, partitions, replicas, configs)
        return name

    def records(
        self,
        topic: str,
        partition: int | None = None,
        *,
        at_least: int = 0,
        timeout: float = 10.0,
    ) -> list[ConsumerRecord]:
        """Return the records that consumers can read, by partition and offset.

        With ``at_least`` the calling thread waits until there are as many.

        :raises KafkaError: if there is no such topic or partition.
        :raises TimeoutError: if there are fewer after ``timeout`` seconds.
        """
        return self._link.call(BrokerHost.records, topic, partition, at_least, timeout)


class Broker(_Topics):
    """A running broker. Its methods may be called from any thread."""

    def __init__(self, link: Link, number: int, port: int) -> None:
        super().__init__(link)
        self._number = number
        self.port = port

    @property
    def bootstrap_servers(self) -> str:
        """The address for clients, ``host:port``."""
        return f"{HOST}:{self.port}"

    def requests(
        self,
        api: ApiKey | None = None,
        *,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> list[ReceivedRequest]:
        """Return the requests that were received, oldest first, the last 10,000."""
        return self._link.call(BrokerHost.requests, self._number, api, topic, client_id)

    # ---- faults ---------------------------------------------------------------------

    def fail(
        self, api: ApiKey | None, error: ErrorCode, **met_by: Unpack[Filter]
    ) -> Fault:
        """Answer requests with an error code, without handling them.

        Each topic and partition that the request names gets the error. ``api`` None
        means any API.
        """
        return self._add(FaultRule(action="fail", api=api, error=error, **met_by))

    def delay(
        self, api: ApiKey | None, seconds: float, **met_by: Unpack[Filter]
    ) -> Fault:
        """Handle requests ``seconds`` later, on the broker's clock."""
        return self._add(FaultRule(action="delay", api=api, seconds=seconds, **met_by))

    def disconnect(
        self,
        api: ApiKey | None = None,
        *,
        handled: bool = False,
        **met_by: Unpack[Filter],
    ) -> Fault:
        """Close the connection instead of answering.

        With ``handled`` the broker handles the request first, and only the answer is
        lost.
        """
        return self._add(
            FaultRule(action="disconnect", api=api, handled=handled, **met_by)
        )

    def drop(
        self,
        api: ApiKey | None = None,
        *,
        handled: bool = False,
        **met_by: Unpack[Filter],
    ) -> Fault:
        """Never answer; the connection stays open and serves nothing more.

        With ``handled`` the broker handles the request first, and only the answer is
        lost.
        """
        return self._add(FaultRule(action="drop", api=api, handled=handled, **met_by))

    def clear_faults(self) -> None:
        """Remove all faults."""
        self._link.call(BrokerHost.remove_fault, self._number, None)

    # ---- time, start and end --------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Move the broker's clock forward; return after the due work is done.

        Sessions of group members expire, retention deletes, delays end. The clients'
        clocks do not change.

        :raises ValueError: for a broker of a cluster, which has the machine's clock.
        """
        self._link.call(BrokerHost.advance, seconds)

    def stop(self) -> None:
        """Stop the broker cleanly; its data remains."""
        self._link.call(BrokerHost.stop, self._number)

    def kill(self) -> None:
        """End the broker as a crash does.

        :raises ValueError: if its data is on disk.
        """
        self._link.call(BrokerHost.kill, self._number)

    def start(self) -> None:
        """Start the broker again, on its data and its port."""
        self._link.call(BrokerHost.start, self._number)

    def _add(self, rule: FaultRule) -> Fault:
        number = self._link.call(BrokerHost.add_fault, self._number, rule)
        return Fault(self._link, self._number, number)


class Cluster(_Topics):
    """Running brokers of one cluster, which share its topics."""

    def __init__(self, link: Link, brokers: Sequence[Broker]) -> None:
        super().__init__(link)
        self.brokers = tuple(brokers)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for clients, separated by commas."""
        return ",".join(it.bootstrap_servers for it in self.brokers)

    def leader(self, topic: str, partition: int = 0) -> Broker:
        """Return the broker that leads a partition.

        :raises KafkaError: if none does.
        """
        number = self._link.call(BrokerHost.leader, topic, partition)
        return self.brokers[number]


@contextlib.contextmanager
def broker(
    *,
    scheduler: str | None = None,
    config: Mapping[str, object] | None = None,
    data: str | PathLike[str] | None = None,
    port: int = 0,
    process: bool = False,
) -> Iterator[Broker]:
    """Run one broker while the block runs.

    ``scheduler`` is a policy (``doorkeeper schedulers``), ``config`` are Kafka's broker
    keys. The data is in memory, unless ``data`` is a directory. Port 0 is any free one.
    The broker runs in a thread, or with ``process`` in a process of its own.

    :raises ConfigError: if a key is unknown, or its value invalid.
    """
    settings = HostSettings(keys=_keys(scheduler, config), data=_path(data), port=port)
    with _linked(settings, process) as link:
        (bound,) = link.call(BrokerHost.ports)
        yield Broker(link, 0, bound)


@contextlib.contextmanager
def cluster(
    brokers: int = 3,
    *,
    scheduler: str | None = None,
    config: Mapping[str, object] | None = None,
    data: str | PathLike[str] | None = None,
    process: bool = False,
) -> Iterator[Cluster]:
    """Run several brokers, and a ZooKeeper in memory, while the block runs.

    The arguments are those of `broker`; ``config`` is for every broker.

    :raises ConfigError: if a key is unknown, or its value invalid.
    :raises ClusterError: if a key belongs to a single broker.
    """
    keys = _keys(scheduler, config)
    settings = HostSettings(keys=keys, brokers=brokers, data=_path(data))
    with _linked(settings, process) as link:
        ports = link.call(BrokerHost.ports)
        yield Cluster(link, [Broker(link, *it) for it in enumerate(ports)])


@contextlib.contextmanager
def _linked(settings: HostSettings, process: bool) -> Iterator[Link]:
    link: Link = ProcessLink(settings) if process else ThreadLink(settings)
    try:
        yield link
    finally:
        link.close()


def _keys(scheduler: str | None, config: Mapping[str, object] | None) -> dict[str, str]:
    chosen = {} if scheduler is None else {DOORKEEPER_SCHEDULER.name: scheduler}
    return {**_as_strings(config), **chosen}


def _as_strings(config: Mapping[str, object] | None) -> dict[str, str]:
    """Return settings as in a properties file; True is ``true``."""
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in (config or {}).items()
    }


def _path(data: str | PathLike[str] | None) -> Path | None:
    return None if data is None else Path(data).absolute()
