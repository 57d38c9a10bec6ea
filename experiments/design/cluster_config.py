"""The keys of an experiment with several brokers, and of their clients."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from experiments.design.values import Mean, Rate, Section
from experiments.design.workload import Traffic, Workload


class Cluster(Section):
    """The brokers of an experiment, numbered from 0, and their clients' time-outs.

    Every topic of the load has a replica on each broker. ``leader`` leads all
    partitions when the load begins; the preferred replica is on the next broker. The
    controller is an additional Doorkeeper broker without replicas. All are members of
    one ZooKeeper.

    Producers keep one request each in flight. After NOT_LEADER_OR_FOLLOWER, or without
    an answer, they ask any broker for metadata and retry after ``retry_backoff_ms``,
    until ``limits.timeout_ms`` (Kafka's ``delivery.timeout.ms``) has passed.
    ``request_timeout_ms`` is their ``request.timeout.ms``, and the limit of a request
    with acks=-1 that waits for its replicas. If such times are shorter than Kafka's,
    queues should be shorter too.

    In virtual time ZooKeeper takes ``decision_ms`` for each request, such as the write
    of an election, and each of the controller's requests costs a broker ``control_us``.
    ZooKeeper expires a killed broker's session after ``session_ms``.
    """

    brokers: Annotated[int, Field(ge=2, le=9)] = 2
    leader: Annotated[int, Field(ge=0)] = 0
    request_timeout_ms: Mean = 30_000.0
    retry_backoff_ms: Mean = 100.0
    decision_ms: Rate = 2.0
    control_us: Mean = 500.0
    session_ms: Mean = 18_000.0

    @property
    def replicas(self) -> tuple[int, ...]:
        """Return the replicas of every partition, the preferred one first."""
        numbers = range(self.leader + 1, self.leader + 1 + self.brokers)
        return tuple(number % self.brokers for number in numbers)

    @property
    def leader_first(self) -> tuple[int, ...]:
        """Return the replicas, the first leader before the others."""
        return (self.leader, *(it for it in self.replicas if it != self.leader))


def lacking(cluster: Cluster, workload: Workload, world: str, *, on_seats: bool) -> str:
    """Return the reason that a world does not support such a cluster, or "".

    ``on_seats`` is true if the virtual world's brokers have seats as servers.
    """
    if cluster.leader >= cluster.brokers:
        return f"cluster.leader: there is no broker {cluster.leader}"
    if world not in ("virtual", "live", "kafka"):
        return f"there is no cluster in the {world} world"
    if world == "virtual" and not on_seats:
        return 'a cluster needs virtual.server = "seats": brokers share no CPU'
    faults = ((entry.name, _unsendable(entry)) for entry in workload.traffic)
    return next((f"{name!r}: {fault}" for name, fault in faults if fault), "")


def _unsendable(entry: Traffic) -> str:
    """Return why a cluster's clients cannot send an entry's requests, or ""."""
    request = entry.request
    if request.api not in ("produce", "metadata"):
        return f"clients of a cluster send produce and metadata, not {request.api}"
    if request.api == "produce":
        wanted = request.model_dump()
        if wanted["partitions"] != 1:
            return "clients of a cluster produce to one partition per request"
        if wanted["acks"] == 0:
            return "with acks = 0 the outcome of a record is unknown"
    if entry.client is not None or entry.shares is not None:
        return "clients of a cluster have connections of their own, and its patience"
    return "" if not entry.read_ms else "clients of a cluster read at once"
