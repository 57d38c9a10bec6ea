"""A test client of the console: requests to the application, and parsed pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode, urlsplit

from starlette.types import ASGIApp

# Elements without an end tag.
_VOID = frozenset({"meta", "link", "input", "br", "rect"})
FORM = "application/x-www-form-urlencoded"


@dataclass
class Answer:
    """A response of the application."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    @cached_property
    def page(self) -> ParsedPage:
        """The body as HTML."""
        return ParsedPage.of(self.text)


class ParsedPage(HTMLParser):
    """The elements of a page, its links, and the text of its cells."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        # Tag and attribute names of each element, and None for each end tag.
        self.shape: list[tuple[str, tuple[str, ...]] | None] = []
        self.links: list[str] = []
        # Points of the lines in charts.
        self.lines: list[str] = []
        self.rows: list[list[str]] = []
        self.words: list[str] = []
        # Values by label in the page's header.
        self.facts: dict[str, str] = {}
        # Values of the fields of each form, by name.
        self.forms: list[dict[str, str]] = []
        # Texts of preformatted elements.
        self.blocks: list[str] = []
        self._field = ""
        self._label = ""
        self._open: list[str] = []

    @classmethod
    def of(cls, text: str) -> ParsedPage:
        """Parse a whole page; check that every element is closed."""
        page = cls()
        page.feed(text)
        page.close()
        assert page._open == []
        return page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Handle a start tag."""
        self.shape.append((tag, tuple(name for name, _ in attrs)))
        found = dict(attrs)
        if "points" in found:
            self.lines.append(found["points"] or "")
        if tag == "form":
            self.forms.append({})
        if tag in ("input", "select", "textarea"):
            self._field = found["name"] or ""
            self.forms[-1][self._field] = found.get("value") or ""
        if tag == "pre":
            self.blocks.append("")
        if tag == "a":
            self.links.append(found["href"] or "")
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.rows:
            self.rows[-1].append("")
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Handle an empty element."""
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        """Handle an end tag, which must match the last start tag."""
        assert self._open.pop() == tag
        self.shape.append(None)

    def handle_data(self, data: str) -> None:
        """Handle text."""
        if self._open[-1:] == ["pre"]:
            self.blocks[-1] += data
        if self._open[-1:] == ["textarea"]:
            # An initial line break is not part of the value.
            self.forms[-1][self._field] += data.removeprefix("\n")
        if not data.strip():
            return
        self.words.append(data.strip())
        if "dt" in self._open:
            self._label = data.strip()
        if "dd" in self._open:
            self.facts[self._label] = data.strip()
        if {"td", "th"} & {*self._open}:
            self.rows[-1][-1] += data.strip()


async def get(
    app: ASGIApp,
    target: str,
    *,
    host: str | None = "localhost:8080",
    method: str = "GET",
    body: bytes = b"",
    address: str = "127.0.0.1",
    **headers_given: str,
) -> Answer:
    """Send one request; headers are keywords."""
    parts = urlsplit(target)
    headers = [] if host is None else [(b"host", host.encode())]
    headers += [
        (name.replace("_", "-").encode(), value.encode())
        for name, value in headers_given.items()
    ]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": parts.path,
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "root_path": "",
        "headers": headers,
        "client": (address, 1),
        "server": ("127.0.0.1", 8080),
        "state": {},
    }
    answer = Answer()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {
                name.decode(): value.decode() for name, value in message["headers"]
            }
        else:
            answer.body += message.get("body", b"")

    await app(scope, receive, send)
    return answer


async def post(
    app: ASGIApp,
    target: str,
    form: Mapping[str, str],
    *,
    origin: str | None = "http://localhost:8080",
    cookie: str | None = None,
    kind: str = FORM,
    address: str = "127.0.0.1",
) -> Answer:
    """Submit a form, as a browser with the given ``cookie`` does."""
    given = {"origin": origin, "cookie": cookie, "content_type": kind}
    headers = {name: value for name, value in given.items() if value is not None}
    body = urlencode(form).encode()
    return await get(app, target, method="POST", body=body, address=address, **headers)


async def carry_out(app: ASGIApp, action: str, **values: str) -> Answer:
    """Submit a form, confirm its preview, and return the resulting page."""
    target = f"/clusters/0/change/{action}"
    shown = await get(app, f"{target}?{urlencode({'preview': 1, **values})}")
    assert shown.status == 200, shown.page.words
    cookie = shown.headers["set-cookie"].partition(";")[0]
    return await post(app, target, shown.page.forms[-1], cookie=cookie)
