"""The login: protected pages, sessions, and the limit on attempts."""

from __future__ import annotations

import pytest
import trio
from starlette.types import ASGIApp

from doorkeeper.web_console.actions import ACTIONS
from doorkeeper.web_console.login import OF_ALL, OF_AN_ADDRESS, PERIOD_S
from doorkeeper.web_console.pages import PAGES
from doorkeeper.web_console.sessions import IDLE_S
from tests.web_console.asgi_client import Answer, get, post
from tests.web_console.consoles import console_of_fake

PASSWORD = "päss word <b>&"
PAGE = "/clusters/0/topics"


def cookie_of(answer: Answer) -> str:
    return answer.headers["set-cookie"].partition(";")[0]


async def attempt(app: ASGIApp, password: str, address: str = "127.0.0.1") -> Answer:
    """Submit the login form with a password."""
    shown = await get(app, "/login")
    (form,) = shown.page.forms
    filled = {**form, "password": password}
    cookie = cookie_of(shown)
    return await post(app, "/login", filled, cookie=cookie, address=address)


async def test_nothing_is_shown_or_asked_before_the_login(
    autojump_clock: object,
) -> None:
    opened = console_of_fake(allow_changes=True, password=PASSWORD)
    async with opened as (app, kafka):
        targets = ["/", *(f"/clusters/0/{it}" for it in PAGES)]
        targets += [f"/clusters/0/change/{it}?preview=1" for it in ACTIONS]
        for target in targets:
            for found in (await get(app, target), await get(app, target, cookie="a=b")):
                assert (found.status, found.headers["location"]) == (303, "/login")
                assert not found.body
        form = {"name": "topic"}
        found = await post(app, "/clusters/0/change/delete-topic", form)
        assert (found.status, found.headers["location"]) == (303, "/login")
        for target in ("/login", "/nothing"):
            shown = await get(app, target)
            assert "fake:1" not in shown.text
        assert (await get(app, "/console.css")).status == 200
        assert not kafka.calls


async def test_the_password_opens_a_session_under_a_new_name(
    autojump_clock: object,
) -> None:
    async with console_of_fake(password=PASSWORD) as (app, _):
        shown = await get(app, "/login")
        entered = await attempt(app, PASSWORD)
        assert (entered.status, entered.headers["location"]) == (303, "/")
        words = entered.headers["set-cookie"].lower().split("; ")
        assert {"httponly", "samesite=strict", "path=/"} <= {*words}
        cookie = cookie_of(entered)
        assert cookie != cookie_of(shown)
        page = await get(app, PAGE, cookie=cookie)
        assert page.status == 200
        assert cookie_of(page) == cookie
        # The previous session id is invalid, and so is another console's.
        assert (await get(app, PAGE, cookie=cookie_of(shown))).status == 303
        async with console_of_fake(password=PASSWORD) as (other, _):
            assert (await get(other, PAGE, cookie=cookie)).status == 303

        (form,) = (it for it in page.page.forms if [*it] == ["token"])
        assert (await post(app, "/logout", {}, cookie=cookie)).status == 403
        assert (await get(app, PAGE, cookie=cookie)).status == 200
        assert (await post(app, "/logout", form, cookie=cookie)).status == 303
        assert (await get(app, PAGE, cookie=cookie)).status == 303


async def test_an_idle_session_ends(autojump_clock: object) -> None:
    async with console_of_fake(password=PASSWORD) as (app, _):
        cookie = cookie_of(await attempt(app, PASSWORD))
        for _ in range(3):
            await trio.sleep(IDLE_S - 1)
            assert (await get(app, PAGE, cookie=cookie)).status == 200
        await trio.sleep(IDLE_S)
        assert (await get(app, PAGE, cookie=cookie)).status == 303


@pytest.mark.parametrize(
    "wrong",
    ["", "x", PASSWORD + " ", PASSWORD[:-1], PASSWORD.upper(), "x" * 9_999, "\x00"],
)
async def test_another_password_opens_nothing(
    wrong: str, autojump_clock: object
) -> None:
    async with console_of_fake(password=PASSWORD) as (app, _):
        found = await attempt(app, wrong)
        assert found.status == 403
        assert "this is not the password" in found.page.words
        assert (await get(app, PAGE, cookie=cookie_of(found))).status == 303
        assert PASSWORD not in found.page.words


async def test_attempts_of_an_address_are_bounded(autojump_clock: object) -> None:
    async with console_of_fake(password=PASSWORD) as (app, _):
        for _ in range(OF_AN_ADDRESS):
            assert (await attempt(app, "wrong", "::1")).status == 403
        for password in ("wrong", PASSWORD):
            assert (await attempt(app, password, "::1")).status == 429
        assert (await attempt(app, PASSWORD, "::2")).status == 303
        await trio.sleep(PERIOD_S)
        assert (await attempt(app, PASSWORD, "::1")).status == 303


async def test_attempts_of_all_addresses_are_bounded(autojump_clock: object) -> None:
    async with console_of_fake(password=PASSWORD) as (app, _):
        for number in range(OF_ALL):
            assert (await attempt(app, "wrong", f"::{number}")).status == 403
        assert (await attempt(app, PASSWORD, "::ffff")).status == 429
        await trio.sleep(PERIOD_S)
        assert (await attempt(app, PASSWORD, "::ffff")).status == 303


async def test_the_login_needs_the_token_and_the_origin(
    autojump_clock: object,
) -> None:
    async with console_of_fake(password=PASSWORD) as (app, _):
        shown = await get(app, "/login")
        form = {**shown.page.forms[0], "password": PASSWORD}
        for token, cookie, origin in (
            ("", cookie_of(shown), "http://localhost:8080"),
            (form["token"], None, "http://localhost:8080"),
            (form["token"], cookie_of(shown), "http://evil.example"),
        ):
            sent = {**form, "token": token}
            found = await post(app, "/login", sent, cookie=cookie, origin=origin)
            assert found.status == 403


async def test_any_host_is_answered_behind_a_login(autojump_clock: object) -> None:
    async with console_of_fake(password=PASSWORD) as (app, _):
        for host in ("console.example:8080", "192.0.2.1", "[2001:db8::1]:8080"):
            assert (await get(app, "/login", host=host)).status == 200
        for bad in (None, "", "a b:c:d"):
            assert (await get(app, "/login", host=bad)).status == 421


async def test_without_a_password_there_is_no_login(autojump_clock: object) -> None:
    async with console_of_fake() as (app, _):
        found = await get(app, "/login")
        assert (found.status, found.headers["location"]) == (303, "/")
        assert "Log out" not in (await get(app, PAGE)).page.words
