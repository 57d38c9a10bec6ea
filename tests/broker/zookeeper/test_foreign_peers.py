"""Peers that do not speak ZooKeeper's protocol cost their connection only."""

from __future__ import annotations

import itertools
import math
import random

import pytest
import trio

from broker.zookeeper.connect_string import parse
from broker.zookeeper.in_memory.server_messages import answer_frame, greeting_frame
from broker.zookeeper.znodes import ConnectionLoss, SessionEvent, ZooKeeperError
from broker.zookeeper.zookeeper_messages import Greeting
from tests.broker.zookeeper.zoo import TIMEOUT_MS, Zoo, heard, with_zoo

CONNECTED, DISCONNECTED = SessionEvent.CONNECTED, SessionEvent.DISCONNECTED
PASSWORD = bytes(16)
GREETING = greeting_frame(Greeting(TIMEOUT_MS, 77, PASSWORD))
FOREIGN = {
    "nothing": b"",
    "no greeting": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a short greeting": (4).to_bytes(4, "big") + bytes(4),
    "a session that has expired before it began": greeting_frame(
        Greeting(0, 0, PASSWORD)
    ),
    "a frame beyond all bounds": GREETING + b"\x7f\xff\xff\xff",
    "a frame of a negative size": GREETING + b"\xff\xff\xff\xff",
    "a header that ends": GREETING + (3).to_bytes(4, "big") + bytes(3),
    "an answer to nothing": GREETING + answer_frame(99, 1, 0),
    "an event of no kind": GREETING
    + answer_frame(-1, 1, 0, b"\x00\x00\x00\x63" + bytes(8)),
    "an event elsewhere": GREETING
    + answer_frame(-1, 1, 0, b"\x00\x00\x00\x01" + bytes(8)),
    "an answer cut short": GREETING + answer_frame(1, 1, 0, b"\x00\x00\x00\x09abc"),
    "a text that is none": GREETING
    + answer_frame(-1, 1, 0, b"\x00\x00\x00\x01\x00\x00\x00\x03\x00\x00\x00\x01\xff"),
}


@pytest.mark.parametrize("said", FOREIGN.values(), ids=FOREIGN)
def test_a_peer_that_talks_nonsense_costs_its_connection_and_nothing_else(
    said: bytes,
) -> None:
    async def scenario(zoo: Zoo) -> None:
        listener = zoo.network.listen("127.0.0.1", 2999)

        async def talk() -> None:
            connection, _ = await listener.accept()
            connection.send(said)
            if not said:
                connection.close()
            # Later connection attempts are refused.
            listener.close()

        zoo.nursery.start_soon(talk)
        zk = zoo.session("one:2999/chroot")
        zoo.nursery.start_soon(zk.run)
        with trio.move_on_after(30) as patience:
            with pytest.raises(ConnectionLoss):
                await zk.get("/")
            # Only a peer that sent a valid greeting may leave the request waiting.
            assert GREETING in said
            await trio.sleep_forever()
        assert patience.cancelled_caught
        assert "2999" in zk.why
        assert len(zoo.attempts) > 20

    with_zoo(scenario)


def test_a_server_that_falls_silent_is_left_after_two_thirds_of_the_time_out() -> None:
    async def scenario(zoo: Zoo) -> None:
        listener = zoo.network.listen("127.0.0.1", 2999)

        async def greet() -> None:
            connection, _ = await listener.accept()
            connection.send(GREETING)
            await trio.sleep(math.inf)

        zoo.nursery.start_soon(greet)
        zk = await zoo.opened("one:2999")
        began_s = trio.current_time()
        with pytest.raises(ConnectionLoss):
            await zk.get("/")
        waited_s = trio.current_time() - began_s
        assert waited_s == pytest.approx(TIMEOUT_MS / 1000 * 2 / 3, abs=0.001)
        assert "was silent" in zk.why
        assert heard(zk)[:2] == [CONNECTED, DISCONNECTED]

    with_zoo(scenario)


def test_random_bytes_end_connections_and_nothing_else() -> None:
    async def scenario(zoo: Zoo) -> None:
        rng = random.Random(zoo.rng.random())
        zk = await zoo.opened("zoo:2181")
        await zk.create("/a", b"kept")
        for _ in range(300):
            stream = await zoo.connect("zoo", 2181)
            # Frames with a correct size get further in the parser.
            body = rng.randbytes(rng.randint(0, 60))
            size = len(body) if rng.random() < 0.8 else rng.getrandbits(32)
            if rng.random() < 0.7:
                await stream.send_all(bytes.fromhex("0000002d") + bytes(45))
            await stream.send_all(size.to_bytes(4, "big") + body)
            await trio.sleep(0.01)
            await stream.aclose()
        assert (await zk.get("/a")).data == b"kept"

    with_zoo(scenario)


def test_random_answers_end_connections_and_nothing_else() -> None:
    async def scenario(zoo: Zoo) -> None:
        rng = random.Random(zoo.rng.random())
        listener = zoo.network.listen("127.0.0.1", 2999)
        count = itertools.count()

        async def talk() -> None:
            while True:
                connection, _ = await listener.accept()
                next(count)
                connection.send(GREETING)
                # Responses to the first call, events and pings, with random bodies.
                xid = rng.choice((1, -1, -2, rng.getrandbits(31)))
                code = rng.choice((0, 0, 0, -101, rng.getrandbits(31)))
                connection.send(answer_frame(xid, 5, code, rng.randbytes(80)))
                connection.close()

        zoo.nursery.start_soon(talk)
        zk = zoo.session("one:2999/chroot")
        zoo.nursery.start_soon(zk.run)
        asked = (zk.get, zk.exists, zk.children)
        with trio.move_on_after(100):
            while True:
                try:
                    await rng.choice(asked)("/a", watch=True)
                except ZooKeeperError:
                    continue
        assert next(count) > 60

    with_zoo(scenario)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "one:",
        "one:0",
        "one:65536",
        ":2181",
        "one:x",
        "one,,two",
        "one/a/",
        "one//a",
    ],
)
def test_a_connect_string_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no"):
        parse(text)
