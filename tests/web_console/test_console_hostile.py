"""Hostile text in every field, wrong hosts, and clusters that do not answer.

A page with hostile text must have the same elements and attributes as the page with
harmless text.
"""

from __future__ import annotations

from itertools import product
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
import trio

from broker.protocol.api_keys import ApiKey
from doorkeeper.web_console.rendering import visible
from tests.web_console.asgi_client import Answer, get
from tests.web_console.consoles import console_of_fake

HOSTILE = {
    "script": "<script>alert(1)</script>",
    "attribute": "\"'><img src=x onerror=alert(1)>",
    "end": "</bdi></pre></td></table></main></title>",
    "template": "{{ 7 * 7 }}{% raw %}{{ views }}",
    "path": "../../?a=b&name=c;d#e%2f%00",
    "scheme": "javascript:alert(1)//",
    "entity": "&lt;b&gt;&amp;&#x3c;",
    "order": "\u202egpj.exe\u2066\u200b",
    "control": "a\x1b[31m\x07b",
    "long": "<b>" * 5_000,
    "quoted": "`${alert(1)}`\n\tx",
}
TARGETS = (
    *("cluster", "broker", "topics", "topic", "records", "groups", "group"),
    *("requests", "reassignments"),
)


def addresses(topic: str, group: str) -> dict[str, str]:
    queries = {
        "broker": {"id": 0},
        "topic": {"name": topic},
        "records": {"name": topic},
        "group": {"name": group},
    }
    return {
        page: f"/clusters/0/{page}?{urlencode(queries.get(page, {}))}"
        for page in TARGETS
    }


def harmless(kind: str) -> str:
    """Return text without markup, which is long if ``kind`` is the long one."""
    return "x" * (len(HOSTILE["long"]) if kind == "long" else 20)


async def test_hostile_text_changes_no_element(autojump_clock: object) -> None:
    async def pages(added: str) -> dict[str, Answer]:
        async with console_of_fake(lambda name: name + added) as (app, kafka):
            targets = addresses(kafka.topics[0], "group" + added)
            return {page: await get(app, it) for page, it in targets.items()}

    expected = {it: await pages(it) for it in {*map(harmless, HOSTILE)}}
    for kind, hostile in HOSTILE.items():
        for page, found in (await pages(hostile)).items():
            plain = expected[harmless(kind)][page]
            assert (kind, page, found.status, plain.status) == (kind, page, 200, 200)
            assert found.page.shape == plain.page.shape, (kind, page)
            for link in found.page.links:
                parts = urlsplit(link)
                assert (parts.scheme, parts.netloc) == ("", ""), (kind, page)
                assert link.startswith(("/", "#")), (kind, page)


async def test_hostile_text_of_a_group_of_kip_848_changes_no_element(
    autojump_clock: object,
) -> None:
    async def shape(added: str) -> object:
        def text(name: str) -> str:
            return "consumer" if name == "type" else name + added

        async with console_of_fake(text) as (app, kafka):
            target = addresses(kafka.topics[0], text("group"))["group"]
            found = await get(app, target)
            assert found.status == 200
            assert ApiKey.CONSUMER_GROUP_DESCRIBE in kafka.calls
            return found.page.shape

    expected = {it: await shape(it) for it in {*map(harmless, HOSTILE)}}
    for kind, hostile in HOSTILE.items():
        assert await shape(hostile) == expected[harmless(kind)], kind


@pytest.mark.parametrize("kind", HOSTILE)
async def test_a_link_leads_to_the_topic_and_the_group_that_it_names(
    kind: str, autojump_clock: object
) -> None:
    def text(name: str) -> str:
        return f"{name}{HOSTILE[kind]}"

    async with console_of_fake(text) as (app, _):
        for listed, page in (("topics", "topic"), ("groups", "group")):
            links = (await get(app, f"/clusters/0/{listed}")).page.links
            (link,) = (it for it in links if f"/{page}?" in it)
            assert parse_qs(urlsplit(link).query)["name"] == [text(page)]
            assert (await get(app, link)).status == 200


async def test_text_is_shown_as_it_is_but_for_what_cannot_be_seen(
    autojump_clock: object,
) -> None:
    async with console_of_fake(lambda name: f"{name} {HOSTILE['script']}") as (app, _):
        shown = (await get(app, "/clusters/0/cluster")).page.words
    assert f"cluster {HOSTILE['script']}" in shown
    assert visible(HOSTILE["order"]) == "\\u202egpj.exe\\u2066\\u200b"
    assert visible(HOSTILE["control"]) == "a\\u001b[31m\\u0007b"


async def test_values_that_kafka_hides_stay_hidden(autojump_clock: object) -> None:
    async with console_of_fake() as (app, _):
        for page in ("broker", "topic"):
            found = await get(app, addresses("topic", "group")[page])
            assert "not to be shown" not in found.text
            assert "hidden" in found.text


HOSTILE_QUERIES = (
    "page=-1",
    "page=9999999999999999999999",
    "page=٣",
    "page=x",
    "partition=5",
    "partition=x",
    "id=x",
    "id=77",
    "name=absent",
    "form=<b>",
    "sort=<b>&only=<b>",
    "like=%22%3E%3Cscript%3E",
    "path=x&self=y&_Context__self=z&__self=1&query=2",
    "refresh=<b>",
    "name=%ff%fe&name=topic",
)


@pytest.mark.parametrize("page", TARGETS)
async def test_a_hostile_query_is_a_page_or_not_found(
    page: str, autojump_clock: object
) -> None:
    bases = ("", "id=0&name=topic&", "name=group&")
    async with console_of_fake() as (app, _):
        for base, query in product(bases, HOSTILE_QUERIES):
            found = await get(app, f"/clusters/0/{page}?{base}{query}")
            assert found.status in (200, 404), query
            tags = {tag for tag, _ in filter(None, found.page.shape)}
            assert not tags & {"script", "img"}, query


@pytest.mark.parametrize(
    "target",
    ["/x", "/clusters/1/topics", "/clusters/0/x", "/clusters/-1/topics", "/.."],
)
async def test_an_unknown_address_is_not_found(
    target: str, autojump_clock: object
) -> None:
    async with console_of_fake() as (app, _):
        assert (await get(app, target)).status == 404


# ---- hosts and headers --------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8080", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:9", 200),
        ("[::1]:8080", 200),
        (None, 421),
        ("", 421),
        ("evil.example:8080", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example:8080", 421),
        ("evil.example@localhost", 421),
        ("localhost:8080, evil.example", 421),
        ("localhost:", 421),
    ],
)
async def test_only_loopback_names_are_answered(
    host: str | None, status: int, autojump_clock: object
) -> None:
    async with console_of_fake() as (app, kafka):
        for target in ("/clusters/0/cluster", "/console.css"):
            assert (await get(app, target, host=host)).status == status
        assert bool(kafka.calls) is (status == 200)


@pytest.mark.parametrize(
    ("target", "host", "method", "status"),
    [
        ("/clusters/0/cluster", "localhost", "GET", 200),
        ("/clusters/0/cluster", "localhost", "POST", 403),
        ("/nothing", "localhost", "GET", 404),
        ("/", "localhost", "GET", 307),
        ("/", "evil.example", "GET", 421),
        ("/console.css", "localhost", "GET", 200),
    ],
)
async def test_every_answer_forbids_scripts_and_frames(
    target: str, host: str, method: str, status: int, autojump_clock: object
) -> None:
    async with console_of_fake() as (app, _):
        found = await get(app, target, host=host, method=method)
    assert found.status == status
    policy = found.headers["content-security-policy"].split("; ")
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert not any("unsafe" in it or "script-src" in it for it in policy)
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["cache-control"] == "no-store"


# ---- clusters that do not answer ----------------------------------------------------


@pytest.mark.parametrize("page", TARGETS)
async def test_a_cluster_that_is_away_is_a_page(
    page: str, autojump_clock: object
) -> None:
    async with console_of_fake() as (app, kafka):
        kafka.is_reachable = False
        found = await get(app, addresses("topic", "group")[page])
        assert found.status == 502
        assert "<b>out of reach</b>" in " ".join(found.page.words)
        kafka.is_reachable = True
        assert (await get(app, addresses("topic", "group")[page])).status == 200


@pytest.mark.parametrize("page", TARGETS)
async def test_a_cluster_that_is_silent_is_a_page_in_time(
    page: str, autojump_clock: object
) -> None:
    async with console_of_fake(request_timeout_ms=60_000) as (app, kafka):
        assert (await get(app, "/clusters/0/cluster")).status == 200
        kafka.is_silent = True
        await trio.sleep(60)
        began_s = trio.current_time()
        found = await get(app, addresses("topic", "group")[page])
        assert found.status == 504
        assert trio.current_time() - began_s == pytest.approx(10)


async def test_an_api_that_is_not_served_is_said_to_be(autojump_clock: object) -> None:
    async with console_of_fake() as (app, kafka):
        for key in (
            ApiKey.DESCRIBE_CLUSTER,
            ApiKey.DESCRIBE_LOG_DIRS,
            ApiKey.DESCRIBE_CONFIGS,
            ApiKey.LIST_GROUPS,
        ):
            del kafka.versions[key]
        for page in ("cluster", "topics", "topic", "broker", "groups"):
            found = await get(app, addresses("topic", "group")[page])
            assert found.status == 200
            if page != "broker":
                assert "not served by this broker" in found.text
