"""The programs of ``docs/trio-client.md`` work as documented."""

from __future__ import annotations

import functools
import random
import re
from pathlib import Path
from textwrap import indent
from typing import Any

import trio

from tests.client.cluster import Cluster, in_cluster

DOCUMENT = Path(__file__).parents[2] / "docs" / "trio-client.md"
PRODUCE, CONSUME, TRANSACT, *_ = re.findall(
    r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL
)


def documented(cluster: Cluster, program: str, **known: Any) -> Any:
    """Return a program of the page as a function that uses the test's broker."""
    imports, body = program.split("\n\n", 1)
    names: dict[str, Any] = dict(known)
    exec(imports, names)

    async def connect(host: str, port: int) -> Any:
        """Connect to the test's broker, at any port of the page."""
        return await cluster.connect(host, cluster.world.server.ports["PLAINTEXT"])

    for name, known_time in (("open_producer", True), ("open_consumer", False)):
        if name in names:
            names[name] = functools.partial(
                names[name],
                connect=connect,
                rng=random.Random(1),
                **({"now_ms": cluster.now_ms} if known_time else {}),
            )
    exec(f"async def main():\n{indent(body, '    ')}    return locals()", names)
    return names["main"]


def test_records_of_one_program_are_read_by_the_other() -> None:
    read: list[Any] = []

    async def scenario(cluster: Cluster) -> Any:
        await cluster.create("greetings", 1)
        assert CONSUME.count("        ...\n") == 1
        reading = CONSUME.replace("...", "read.append(record); break")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(documented(cluster, reading, read=read))
            # The reader begins at the end and must be ready before the write.
            await trio.sleep(10)
            return (await documented(cluster, PRODUCE)())["written"]

    written = in_cluster(scenario)
    (record,) = read
    assert (record.key, record.value, record.headers) == (
        b"k",
        b"hello",
        (("a", b"b"),),
    )
    assert (record.topic, record.partition, record.offset) == ("greetings", 0, 0)
    assert (written.topic, written.partition, written.offset) == ("greetings", 0, 0)


def test_the_program_with_transactions_copies() -> None:
    async def scenario(cluster: Cluster) -> list[bytes | None]:
        await cluster.create("greetings", 1)
        await cluster.create("copies", 1)
        once = TRANSACT.replace("while True:", "for _ in range(1):")
        assert once != TRANSACT
        async with trio.open_nursery() as nursery:
            nursery.start_soon(documented(cluster, once))
            await trio.sleep(10)
            await documented(cluster, PRODUCE)()
        async with cluster.consumer(isolation_level="read_committed") as consumer:
            consumer.assign(await consumer.partitions_for("copies"))
            return [each.value for each in await consumer.poll()]

    assert in_cluster(scenario) == [b"hello"]
