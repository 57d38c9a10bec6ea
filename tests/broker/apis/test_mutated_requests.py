"""Mutated requests are answered, rejected or closed, and raise no exception.

In frames of every API and version, bytes are changed, removed and inserted. The broker
answers or closes the connection, keeps its invariants, and serves the next client.
"""

from __future__ import annotations

import random
import struct
from typing import Any
from uuid import UUID

import pytest

from broker.handling.api_registry import APIS
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import MalformedFrame
from tests.broker.apis.broker_world import NONE, World
from tests.broker.apis.requests import (
    SECONDS_30,
    fetch_fields,
    leader_and_isr,
    stop_replica,
    update_metadata,
)
from tests.broker.apis.test_every_version import FIELDS, KEYS

ROUNDS = 12
# Boundary values of integers.
ODD = (-(2**31), -2, -1, 0, 1, 127, 128, 255, 32767, 2**31 - 1)
T = ("t", 0)
COMMANDS: dict[ApiKey, Any] = {
    ApiKey.LEADER_AND_ISR: leader_and_isr(T, leader=0, leader_epoch=9, isr=(0, 2)),
    ApiKey.STOP_REPLICA: stop_replica(T, leader_epoch=9, delete=True),
    ApiKey.UPDATE_METADATA: update_metadata(T, leader=2, brokers={2: ("b", 1)}),
}


def frame_of(world: World, key: ApiKey, version: int, topic_id: UUID) -> bytes:
    if key in COMMANDS:
        return world.entity_frame(key, version, COMMANDS[key].to_wire(version))
    fields = {"timeout": SECONDS_30, **FIELDS.get(key, {})}
    if key is ApiKey.FETCH:
        fields = fetch_fields({(topic_id if version >= 13 else "t", 0): 0})
    return world.frame(key, version, **fields)


def mutated(frame: bytes, rng: random.Random) -> bytes:
    """Return ``frame`` with its body changed, but not its API and version."""
    changed = bytearray(frame)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(8, len(changed))
        match rng.randrange(4):
            case 0:
                changed[at] = rng.randrange(256)
            case 1:
                del changed[at : at + rng.randint(1, 4)]
            case 2:
                changed[at:at] = rng.randbytes(rng.randint(1, 4))
            case 3:
                number = struct.pack(">i", rng.choice(ODD))[-rng.randint(1, 4) :]
                changed[at : at + len(number)] = number
        if len(changed) <= 9:
            break
    return bytes(changed)


@pytest.mark.parametrize("key", KEYS)
def test_no_mutation_is_more_than_a_clean_error(key: ApiKey) -> None:
    rng = random.Random(key)
    world = World()
    topic_id = world.create("t", 2)
    for version in APIS[key].served:
        for number in range(ROUNDS):
            frame = mutated(frame_of(world, key, version, topic_id), rng)
            try:
                call = world.start_frame(frame)
            except MalformedFrame:
                # An invalid header closes the connection before there is a request.
                continue
            if not call.done:
                world.pass_ms(2**31 // 1_000_000)
            is_answered = call.closed or isinstance(call.frame, bytes)
            assert is_answered or not call.done, (version, number)
    world.check()
    world.create("next")
    assert world.produce("next", b"x").error_code is NONE
