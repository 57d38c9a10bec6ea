"""Consoles over brokers in memory."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from starlette.types import ASGIApp

from broker.client.admin import open_admin
from broker.client.background_tasks import background
from broker.client.network_client import Connect
from doorkeeper.web_console.app import Console
from doorkeeper.web_console.cluster_view import ClusterView
from doorkeeper.web_console.guard import LOOPBACK_NAMES
from doorkeeper.web_console.login import Password
from tests.web_console.fake_kafka import FakeKafka


@asynccontextmanager
async def console_of(
    bootstrap: str,
    connect: Connect,
    *,
    keep_history: bool = False,
    allow_changes: bool = False,
    password: str | None = None,
    prepare: Callable[[ClusterView], None] = lambda view: None,
    **settings: Any,
) -> AsyncIterator[ASGIApp]:
    """Yield the application for one cluster."""
    opened = open_admin(bootstrap, connect=connect, rng=random.Random(5), **settings)
    async with opened as admin:
        view = ClusterView(bootstrap, admin, connect)
        prepare(view)
        async with background(*([view.keep_history] if keep_history else [])):
            kept = None if password is None else Password(password)
            console = Console([view], allow_changes=allow_changes, password=kept)
            yield console.app(LOOPBACK_NAMES if kept is None else None)


@asynccontextmanager
async def console_of_fake(
    text: Callable[[str], str] = lambda name: name,
    topics: int = 1,
    **settings: Any,
) -> AsyncIterator[tuple[ASGIApp, FakeKafka]]:
    """Yield the application over a broker that answers from a table."""
    async with trio.open_nursery() as nursery:
        kafka = FakeKafka(nursery, text, topics)
        async with console_of("fake:1", kafka.connect, **settings) as app:
            yield app, kafka
        nursery.cancel_scope.cancel()
