"""Host names that a resolver cannot encode: a peer's fault, or an operator's."""

from __future__ import annotations

import random

import pytest
import trio

from broker.assembly import assemble, numbered
from broker.client.client_config import parse_bootstrap
from broker.config import BrokerConfig, Listener
from broker.coordination.zookeeper.layout.broker_records import (
    BrokerRecord,
    write_broker,
)
from broker.disk.memory import MemoryStorage
from broker.node.hosts import Hosts, look_up_here
from broker.protocol.errors import ConfigError, ErrorCode
from broker.zookeeper import connect_string
from broker.zookeeper.zookeeper_session import ZooKeeperSession
from tests.virtual.brokers import Brokers, with_brokers
from tests.virtual.members import Members, with_members

ODD_HOSTS = ("a..b", "a" * 64)


@pytest.mark.parametrize("host", ODD_HOSTS)
def test_a_leader_at_an_odd_name_is_away_until_it_has_another(host: str) -> None:
    async def scenario(brokers: Brokers) -> None:
        await brokers.tell_addresses(1, range(2), hosts={0: host})
        await brokers.tell_addresses(0, range(2))
        await brokers.elect(0, 1, (0, 1))
        await brokers.until(lambda: len(brokers.partition(0).isr) == 1)
        assert await brokers.produce(0, b"a") == (ErrorCode.none, 0)
        await trio.sleep(5)
        assert not brokers.applications[1].broker.replication.supervisor.failures
        # The follower serves other requests meanwhile, and catches up afterwards.
        await brokers.tell_addresses(1, range(2))
        await brokers.until(lambda: brokers.partition(1).log.log_end_offset == 1)
        await brokers.until(lambda: len(brokers.partition(0).isr) == 2)

    with_brokers(scenario)


@pytest.mark.parametrize("host", ODD_HOSTS)
def test_a_member_at_an_odd_name_costs_the_cluster_that_member(host: str) -> None:
    """Another implementation may register such a name: only its member is lost."""

    async def scenario(members: Members) -> None:
        operator = await members.session()
        there = Listener(
            name="PLAINTEXT", host=host, port=9099, security_protocol="PLAINTEXT"
        )
        registered = write_broker(BrokerRecord(listeners=(there,), rack=None), 1)
        await operator.create("/brokers/ids/9", registered, ephemeral=True)
        assert (await members.create("t")).error_code is ErrorCode.none
        controller = members.controller
        assert controller is not None
        await members.until(lambda: 9 in members.broker(0).metadata_cache.brokers)
        await trio.sleep(5)
        assert members.controller == controller

    with_members(scenario)


@pytest.mark.parametrize("host", ODD_HOSTS)
@pytest.mark.parametrize("key", ["listeners", "advertised.listeners"])
def test_an_odd_name_in_own_listeners_stops_the_start(key: str, host: str) -> None:
    keys = {"listeners": "PLAINTEXT://127.0.0.1:9092", key: f"PLAINTEXT://{host}:9092"}
    with pytest.raises(ConfigError, match=f"^{key}"):
        _ = BrokerConfig.load(None, keys).advertised


@pytest.mark.parametrize("host", ODD_HOSTS)
def test_a_zookeeper_at_an_odd_name_stops_the_start(host: str) -> None:
    keys = {"zookeeper.connect": f"127.0.0.1:2181,{host}:2181", "log.dirs": "/data"}

    async def nowhere(_: str, port: int) -> trio.SocketStream:
        raise ConnectionRefusedError(port)

    config = BrokerConfig.load(None, keys)
    with pytest.raises(ConfigError, match=r"^zookeeper\.connect"):
        trio.run(numbered, config, MemoryStorage(), random.Random(1), nowhere)
    config = BrokerConfig.load(None, {**keys, "broker.id": "1"})
    with pytest.raises(ConfigError, match=r"^zookeeper\.connect"):
        assemble(
            config,
            storage=MemoryStorage(),
            now_ns=lambda: 0,
            now_ms=lambda: 0,
            rng=random.Random(1),
        )


@pytest.mark.parametrize("host", ODD_HOSTS)
def test_bounds_for_an_odd_name_are_refused(host: str) -> None:
    config = BrokerConfig.load(None, {"max.connections.per.ip.overrides": f"{host}:5"})
    hosts = Hosts(look_up_here)
    with pytest.raises(ConfigError, match=r"^max\.connections\.per\.ip\.overrides"):
        hosts.resolve_now(config)
    with pytest.raises(ConfigError, match=r"^max\.connections\.per\.ip\.overrides"):
        trio.run(hosts.resolve, config)


@pytest.mark.parametrize("host", ODD_HOSTS)
def test_a_client_refuses_to_look_for_brokers_at_an_odd_name(host: str) -> None:
    with pytest.raises(ConfigError, match=r"^bootstrap\.servers"):
        parse_bootstrap(f"127.0.0.1:9092,{host}:9092")


@pytest.mark.parametrize("port", ["65536", "9" * 5000, "\u0663"], ids=ascii)
def test_a_port_that_is_none_is_refused(port: str) -> None:
    with pytest.raises(ConfigError, match=r"^bootstrap\.servers"):
        parse_bootstrap(f"127.0.0.1:{port}")
    with pytest.raises(ValueError, match="no host with a port"):
        connect_string.parse(f"127.0.0.1:{port}")


def test_a_session_goes_on_to_the_next_server_whatever_connecting_raises() -> None:
    async def main() -> None:
        asked = []

        async def connect(host: str, port: int) -> trio.SocketStream:
            asked.append(host)
            raise [UnicodeError, RuntimeError, OverflowError][len(asked) % 3](host)

        session = ZooKeeperSession(
            "a,b", timeout_ms=1000, connect=connect, rng=random.Random(1)
        )
        with trio.move_on_after(1):
            await session.run()
        assert set(asked) == {"a", "b"}

    trio.run(main)
