"""A cluster whose brokers and clients authenticate, under a ZooKeeper in memory."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from broker.coordination.coordinator_roles import ConfigKind
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.virtual.kafka import ask
from tests.virtual.members import Members, with_members
from tests.virtual.test_sasl import alter_user, scram

USER = 'username="broker" password="between"'
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "default.replication.factor": "3",
    "num.partitions": "3",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,OAUTHBEARER",
    "listener.name.plaintext.plain.sasl.jaas.config": (
        f'PlainLoginModule required {USER} user_broker="between" user_alice="client";'
    ),
}
LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_jaas_config": (
        'PlainLoginModule required username="alice" password="client";'
    ),
}


async def connected(members: Members, number: int, mechanism: str) -> Any:
    """Return a connection to a broker after its handshake."""
    stream = await members.connect("127.0.0.1", 9092 + number)
    found = await ask(stream, ApiKey.SASL_HANDSHAKE, 1, mechanism=mechanism)
    assert found.error_code is ErrorCode.none
    return stream


async def as_alice(members: Members, number: int) -> Any:
    """Return an authenticated connection to a broker."""
    stream = await connected(members, number, "PLAIN")
    found = await ask(
        stream, ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0client"
    )
    assert found.error_code is ErrorCode.none
    return stream


async def accepted(members: Members, number: int, user: str, password: str) -> bool:
    """Return whether a broker accepts a SCRAM user."""
    stream = await connected(members, number, "SCRAM-SHA-256")
    return await scram(stream, user, password) is ErrorCode.none


def test_brokers_replicate_and_learn_users_of_each_other() -> None:
    async def scenario(members: Members) -> None:
        await members.until(lambda: members.controller is not None)
        async with members.producer(acks="all", **LOGIN) as producer:
            for number in range(30):
                receipt = await producer.send("t", b"%d" % number)
                await receipt.wait()
        await members.until(
            lambda: all(members.isr("t", index) == {0, 1, 2} for index in range(3))
        )
        assert members.controller is not None
        governing, other = members.controller, (members.controller + 1) % 3
        refused = await alter_user(await as_alice(members, other), "bob", 1, "x")
        assert refused.error_code is ErrorCode.not_controller
        admin = await as_alice(members, governing)
        done = await alter_user(admin, "bob", 1, "first")
        assert done.error_code is ErrorCode.none
        await members.until(
            lambda: all(
                "bob" in members.broker(it).coordinator.admin.configs[ConfigKind.USER]
                for it in members.alive
            )
        )
        for number in members.alive:
            assert await accepted(members, number, "bob", "first")
            assert not await accepted(members, number, "bob", "second")
        # A broker that was down reads the credentials at its start.
        await members.kill(other)
        await alter_user(admin, "eve", 1, "third")
        await members.start(other)
        assert await accepted(members, other, "eve", "third")

    with_members(scenario, **SETTINGS, **PLAIN_BETWEEN)


PLAIN_BETWEEN = {"sasl.mechanism.inter.broker.protocol": "PLAIN"}


def test_a_broker_with_a_wrong_password_joins_no_cluster() -> None:
    """No controller reaches the broker, and it follows no leader."""
    key = "listener.name.plaintext.plain.sasl.jaas.config"
    wrong = SETTINGS[key].replace('password="between"', 'password="among"')

    async def scenario(members: Members) -> None:
        raise AssertionError("the brokers know each other")

    with pytest.raises(ExceptionGroup) as caught:
        with_members(scenario, **{**SETTINGS, **PLAIN_BETWEEN, key: wrong})
    assert caught.value.split(trio.TooSlowError)[1] is None
