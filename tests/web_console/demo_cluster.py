"""Pages of three busy brokers in virtual time: the same bytes in each run.

Records flow for `MINUTES`, so that rates, lags and disks have a history.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from typing import Any, Final

import trio
from starlette.types import ASGIApp
from trio.testing import memory_stream_pair

from broker.client.consumer.consumer import KafkaConsumer
from broker.client.producer.producer import KafkaProducer
from broker.observation.metric import Metric
from broker.observation.metrics.collector import Collector, Sources
from broker.observation.metrics.endpoint import Exposition
from doorkeeper.web_console.broker_metrics import INFO
from tests.virtual.members import Members, with_members
from tests.web_console.asgi_client import Answer, get
from tests.web_console.consoles import console_of

MINUTES: Final = 40
STEP_S: Final = 30
PAGES: Final = {
    "cluster": "cluster",
    "topics": "topics?sort=rate",
    "topic": "topic?name=orders",
    "records": "records?name=orders&partition=0",
    "group": "group?name=billing",
    "requests": "requests",
    "reassignment": "change/reassign?preview=1&topics=clicks&throttle=50000000",
}
SETTINGS: Final = {
    "doorkeeper_scheduler": "wfq",
    "doorkeeper_wfq_weights": "control:16,replication:4,produce:2",
    "log_dirs": "/var/lib/kafka",
    "replica_fetch_wait_max_ms": "5000",
    "replica_lag_time_max_ms": "30000",
}
RACKS: Final = ("eu-1a", "eu-1b", "eu-1c")
CAPACITY_BYTES: Final = (512 << 20, 512 << 20, 128 << 20)


def recorded() -> dict[str, str]:
    """Return the pages by name, as HTML."""
    with ExitStack() as stack:
        # Free ports, which brokers advertise in their configs.
        free = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in RACKS
        ]
        ports = [it.getsockname()[1] for it in free]

    async def scenario(members: Members) -> dict[str, str]:
        await with_metrics(members, ports)
        await with_topics(members)
        async with trio.open_nursery() as nursery:
            connect = connecting(members, nursery, ports)
            async with (
                console_of(
                    "127.0.0.1:9092",
                    connect,
                    keep_history=True,
                    allow_changes=True,
                ) as app,
                members.producer(client_id="shop") as producer,
            ):
                pages = await flow(members, app, producer)
            nursery.cancel_scope.cancel()
        assert {it.status for it in pages.values()} == {200}
        return {name: it.text for name, it in pages.items()}

    return with_members(scenario, **SETTINGS)


async def with_metrics(members: Members, ports: list[int]) -> None:
    """Restart each broker with its own rack, disk and metrics endpoint."""
    for number, (port, rack) in enumerate(zip(ports, RACKS, strict=True)):
        members.members[number].storage.capacity_bytes = CAPACITY_BYTES[number]
        members.settings = {
            **members.settings,
            "broker.rack": rack,
            "doorkeeper.metrics.port": str(port),
        }
        await members.stop(number)
        await members.start(number)
        await members.until(members.know_each_other)


async def with_topics(members: Members) -> None:
    """Create the topics; that of clicks is on two of three brokers."""
    await members.create("orders", 6, configs=[("retention.ms", "259200000")])
    await members.create("payments", 3, configs=[("min.insync.replicas", "2")])
    await members.create("customers", 3, configs=[("cleanup.policy", "compact")])
    placed = [
        {"partition_index": it, "broker_ids": [it % 2, (it + 1) % 2]} for it in range(6)
    ]
    await members.create("clicks", -1, replication_factor=-1, assignments=placed)
    await members.until(
        lambda: all(len(members.isr("orders", it)) == 3 for it in range(6))
    )


async def flow(
    members: Members, app: ASGIApp, producer: KafkaProducer
) -> dict[str, Answer]:
    """Produce records while one group commits at intervals; return the pages."""
    steps = MINUTES * 60 // STEP_S
    async with AsyncExitStack() as stack:
        billing = [
            await stack.enter_async_context(consumer_of(members, "billing", it))
            for it in ("billing-1", "billing-2")
        ]
        for it in billing:
            it.subscribe(["orders", "payments"])
        async with consumer_of(members, "dashboard", "dashboard") as dashboard:
            dashboard.subscribe(["clicks"])
            for step in range(4):
                await one_step(producer, step)
                await drained(dashboard)
                await dashboard.commit()
        for step in range(4, steps):
            await one_step(producer, step)
            for number, it in enumerate(billing):
                await drained(it)
                if step % (3 + 4 * number) == 0:
                    await it.commit()
            await get(app, "/clusters/0/requests")
        return {
            name: await get(app, f"/clusters/0/{target}")
            for name, target in PAGES.items()
        }


def consumer_of(members: Members, group: str, client: str) -> Any:
    """Open a consumer without automatic commits."""
    return members.consumer(group_id=group, client_id=client, enable_auto_commit=False)


async def drained(consumer: KafkaConsumer) -> None:
    """Read all available records."""
    while await consumer.poll(timeout_s=0.5):
        pass


async def one_step(producer: KafkaProducer, step: int) -> None:
    """Send the records of one step, and wait for its end."""
    ends_s = trio.current_time() + STEP_S
    receipts = []
    for it in range(60):
        number = 60 * step + it
        customer = f"c-{number * 37 % 500:03}"
        order = {"order": number, "customer": customer, "cents": 990 + number * 7}
        key, value = customer.encode(), json.dumps(order).encode()
        headers = [("trace", b"%08x" % (number * 2_654_435_761 % (1 << 32)))]
        receipts.append(await producer.send("orders", value, key=key, headers=headers))
        if it % 3 == 0:
            receipts.append(await producer.send("payments", value, key=key))
    for it in range(300):
        partition = 3 if it % 2 else it // 2 % 6
        value = b'{"page":"/item/%d"}' % it + b" " * 600
        receipts.append(await producer.send("clicks", value, partition=partition))
    for receipt in receipts:
        await receipt.wait()
    await trio.sleep_until(ends_s)


# ---- metrics ------------------------------------------------------------------------


def connecting(
    members: Members, nursery: trio.Nursery, ports: list[int]
) -> Callable[[str, int], Any]:
    """Return connectors to brokers and to their metrics, without real sockets."""

    async def connect(host: str, port: int) -> Any:
        if port not in ports:
            return await members.connect(host, port)
        await trio.lowlevel.checkpoint()
        ours, theirs = memory_stream_pair()
        nursery.start_soon(send, theirs, ports.index(port))
        return ours

    async def send(stream: Any, number: int) -> None:
        await stream.receive_some()
        text = metrics_of(members, number)
        await stream.send_all(f"HTTP/1.1 200 OK\r\n\r\n{text}".encode())
        await stream.aclose()

    return connect


def metrics_of(members: Members, number: int) -> str:
    """Return a broker's request metrics in the format of its endpoint."""
    server = members.members[number].server
    assert server is not None
    made = Exposition()
    labels = {
        "cluster_id": members.broker(number).cluster_id or "",
        "broker_id": str(number),
    }
    made.add([Metric(name=INFO, kind="gauge", value=1, labels=labels)])
    sources = Sources(
        requests=server.request_metrics,
        channels=tuple(server.request_channels.values()),
        processors=server.processors,
        pool=None,
        now_ns=members.clock.now_ns,
    )
    made.add(Collector(sources).collect())
    return made.text()
