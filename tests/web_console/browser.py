"""Headless Chromium, and a console that it reaches over loopback.

The console runs in its own thread in real time, and the test's thread drives the
browser. There are no sleeps: every driver call waits for its condition.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import pytest
import trio
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    sync_playwright,
)

from doorkeeper.web_console.web_server import bound, serve_app
from tests.web_console.consoles import console_of_fake
from tests.web_console.fake_kafka import FakeKafka

NAMES = ("chromium", "chromium-browser", "google-chrome")
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


@contextmanager
def chromium() -> Iterator[Browser]:
    """Yield the installed browser without name resolution; skip if there is none."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no Chromium is installed (`make browser`)")
    with sync_playwright() as driver:
        alone = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
        browser = driver.chromium.launch(executable_path=path, args=[alone])
        yield browser
        browser.close()


class Site(NamedTuple):
    """A console at an address, and its fake broker."""

    address: str
    kafka: FakeKafka


@contextmanager
def site(
    text: Callable[[str], str] = lambda name: name, **settings: Any
) -> Iterator[Site]:
    """Yield a console, served as ``doorkeeper console`` serves it."""
    ready: Future[tuple[Site, trio.lowlevel.TrioToken, trio.Event]] = Future()

    async def main() -> None:
        listener, stop = bound("127.0.0.1", 0), trio.Event()
        port = listener.getsockname()[1]
        async with console_of_fake(text, **settings) as (app, kafka):
            found = Site(f"http://127.0.0.1:{port}", kafka)
            ready.set_result((found, trio.lowlevel.current_trio_token(), stop))
            # ASGI's types differ between the two libraries.
            anything: Any = app
            await serve_app(anything, listener, stop.wait)

    with ThreadPoolExecutor(1) as threads:
        ended = threads.submit(trio.run, main)
        wait((ready, ended), return_when=FIRST_COMPLETED)
        if not ready.done():
            ended.result()
        found, token, stop = ready.result()
        try:
            yield found
        finally:
            trio.from_thread.run_sync(stop.set, trio_token=token)
            ended.result()


class Watched(NamedTuple):
    """A page, and the faults reported by the browser since it was opened."""

    page: Page
    faults: list[str]


@contextmanager
def watched(browser: Browser, address: str, **settings: Any) -> Iterator[Watched]:
    """Yield a page; its faults are errors, dialogs and requests to other hosts."""
    faults: list[str] = []

    def on_console(message: ConsoleMessage) -> None:
        # The browser reports a refused page, whose status is above 399.
        if message.type != "log" and not message.text.startswith(
            "Failed to load resource: the server responded with a status of 4"
        ):
            faults.append(f"console: {message.text}")

    def on_dialog(dialog: Dialog) -> None:
        faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def on_request(request: Request) -> None:
        if not request.url.startswith(f"{address}/"):
            faults.append(f"request: {request.url[:200]}")

    def on_failure(request: Request) -> None:
        # Navigation aborts pending requests of the previous page.
        if request.failure != "net::ERR_ABORTED":
            faults.append(f"{request.failure}: {request.url[:200]}")

    context = browser.new_context(**settings)
    page = context.new_page()
    page.on("console", on_console)
    page.on("dialog", on_dialog)
    page.on("pageerror", lambda error: faults.append(f"script: {error}"))
    page.on("popup", lambda opened: faults.append(f"window: {opened.url}"))
    page.on("request", on_request)
    page.on("requestfailed", on_failure)
    try:
        yield Watched(page, faults)
    finally:
        context.close()
