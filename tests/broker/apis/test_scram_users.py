"""Users with SCRAM credentials are altered and described with Kafka's messages."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from broker.coordination.coordinator_roles import ConfigKind
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.sasl.scram import SCRAM_MECHANISMS, read_credential
from tests.broker.apis.broker_world import World

ALTER = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
DESCRIBE = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
SALT = b"a salt of twenty b.."
NONE = ErrorCode.none
TWICE = (
    ErrorCode.duplicate_resource,
    "A user credential cannot be altered twice in the same request",
)


def put(
    name: str, mechanism: int = 1, iterations: int = 4096, password: str = "secret"
) -> dict[str, Any]:
    hash_name = "sha512" if mechanism == 2 else "sha256"
    content = password.encode()
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": SALT,
        "salted_password": hashlib.pbkdf2_hmac(hash_name, content, SALT, 4096),
    }


def drop(name: str, mechanism: int = 1) -> dict[str, Any]:
    return {"name": name, "mechanism": mechanism}


def alter(world: World, *upsertions: Any, deletions: Any = ()) -> dict[str, Any]:
    """Alter credentials; return error and message by user."""
    answer = world.send(ALTER, 0, deletions=deletions, upsertions=upsertions)
    return {row.user: (row.error_code, row.error_message) for row in answer.results}


def described(world: World, *names: str) -> dict[str, Any]:
    """Return iterations by mechanism, or error and message, by user."""
    users = [{"name": name} for name in names] or None
    answer = world.send(DESCRIBE, 0, users=users)
    assert answer.error_code is NONE
    return {
        row.user: {it.mechanism: it.iterations for it in row.credential_infos}
        or (row.error_code, row.error_message)
        for row in answer.results
    }


def test_users_come_change_and_go() -> None:
    world = World()
    assert described(world) == {}
    assert alter(world, put("alice"), put("alice", 2), put("bob", 1, 16_384)) == {
        "alice": (NONE, None),
        "bob": (NONE, None),
    }
    assert described(world) == {"alice": {1: 4096, 2: 4096}, "bob": {1: 16_384}}
    assert alter(world, put("alice", 2, 5000), deletions=[drop("bob")]) == {
        "alice": (NONE, None),
        "bob": (NONE, None),
    }
    assert described(world) == {"alice": {1: 4096, 2: 5000}}
    world = world.restarted()
    assert described(world, "alice") == {"alice": {1: 4096, 2: 5000}}


def test_the_stored_keys_are_those_of_the_password() -> None:
    world = World()
    alter(world, put("alice", 2))
    configs = world.broker.coordinator.admin.configs[ConfigKind.USER]["alice"]
    found = read_credential(configs["SCRAM-SHA-512"])
    mechanism = SCRAM_MECHANISMS["SCRAM-SHA-512"]
    salted = mechanism.salted_password("secret", SALT, 4096)
    assert found == mechanism.credential(salted, SALT, 4096)


@pytest.mark.parametrize(
    ("upsertions", "deletions", "error", "message"),
    [
        (
            [put("")],
            (),
            ErrorCode.unacceptable_credential,
            "Username must not be empty",
        ),
        (
            [put("u", 1, 4095)],
            (),
            ErrorCode.unacceptable_credential,
            "Too few iterations",
        ),
        (
            [put("u", 1, 16_385)],
            (),
            ErrorCode.unacceptable_credential,
            "Too many iterations",
        ),
        (
            [put("u", 3)],
            (),
            ErrorCode.unsupported_sasl_mechanism,
            "Unknown SCRAM mechanism",
        ),
        (
            (),
            [drop("u", 0)],
            ErrorCode.unsupported_sasl_mechanism,
            "Unknown SCRAM mechanism",
        ),
        (
            (),
            [drop("u")],
            ErrorCode.resource_not_found,
            "Attempt to delete a user credential that does not exist",
        ),
        ([put("u"), put("u")], (), *TWICE),
        ([put("u")], [drop("u")], *TWICE),
    ],
)
def test_a_user_that_is_refused_keeps_nobody_else_back(
    upsertions: Any, deletions: Any, error: ErrorCode, message: str
) -> None:
    world = World()
    outcome = alter(world, *upsertions, put("other", 2), deletions=deletions)
    name = (list(upsertions) + list(deletions))[0]["name"]
    assert outcome == {name: (error, message), "other": (NONE, None)}
    assert described(world) == {"other": {2: 4096}}


def test_a_refused_change_takes_the_users_other_changes_with_it() -> None:
    world = World()
    alter(world, put("u"))
    outcome = alter(world, put("u", 1, 8192), deletions=[drop("u", 2)])
    assert outcome["u"][0] is ErrorCode.resource_not_found
    assert described(world) == {"u": {1: 4096}}


def test_users_that_cannot_be_described() -> None:
    world = World()
    alter(world, put("alice"))
    assert described(world, "nobody", "alice", "", "alice", "bob") == {
        "nobody": (
            ErrorCode.resource_not_found,
            "Attempt to describe a user credential that does not exist: nobody",
        ),
        "alice": (
            ErrorCode.duplicate_resource,
            "Cannot describe SCRAM credentials for the same user twice in a single "
            "request: alice",
        ),
        "": (ErrorCode.resource_not_found, "Username must not be empty"),
        "bob": (
            ErrorCode.resource_not_found,
            "Attempt to describe a user credential that does not exist: bob",
        ),
    }


def test_first_users_are_stored_once() -> None:
    """A new password in the JAAS config does not replace a stored credential."""
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:9092,S://127.0.0.1:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,S:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    }
    key = "listener.name.s.scram-sha-256.sasl.jaas.config"

    def with_password(password: str) -> dict[str, str]:
        return {**settings, key: f'ScramLoginModule required user_a="{password}";'}

    world = World(with_password("one"))
    before = dict(world.broker.coordinator.admin.configs[ConfigKind.USER])
    assert described(world) == {"a": {1: 4096}}
    disk = world.storage.after_kill()
    world = World(with_password("two"), disk)
    assert world.broker.coordinator.admin.configs[ConfigKind.USER] == before
