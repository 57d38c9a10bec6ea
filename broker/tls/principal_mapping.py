r"""Principal names from distinguished names: ``ssl.principal.mapping.rules``.

Follows Kafka's ``SslPrincipalMapper``. Rules are ``DEFAULT`` (the name itself) or
``RULE:pattern/replacement/[LU]``, separated by commas. The first rule whose pattern
matches the complete name gives the principal. Patterns are Python's with ASCII classes,
which agree with Java's except for rare constructs. Replacements are Java's (``$1``).

>>> PrincipalMapping(r"RULE:^CN=(.*?),.*$/$1/L").name_of("CN=Ann,O=x")
'ann'
>>> PrincipalMapping("RULE:^CN=(.*?)$/$1/").name_of("O=x") is None
True
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

_RULE: Final = (
    r"(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/"
    r"(?P<case>[LU]?)"
    r"|(?P<other>.*?)"
)
_NEXT: Final = re.compile(rf"\s*(?:{_RULE})\s*(?:,\s*|$)")
_Apply: TypeAlias = Callable[[str], str | None]


class PrincipalMapping:
    """The rules of one listener; raises ValueError if one cannot be parsed."""

    def __init__(self, written: str) -> None:
        self._rules: list[_Apply] = []
        for match in _NEXT.finditer(written.strip()):
            if match["default"]:
                self._rules.append(str)
            elif match["pattern"] is not None:
                self._rules.append(
                    _rule(match["pattern"], match["replacement"], match["case"])
                )
            elif match["other"]:
                raise ValueError(
                    "DEFAULT, or RULE:pattern/replacement/ with L, U or nothing behind "
                    "it, separated by commas"
                )

    def name_of(self, distinguished_name: str) -> str | None:
        """Return the principal's name; None if no rule matches."""
        for rule in self._rules:
            name = rule(distinguished_name)
            if name is not None:
                return name
        return None


def _rule(pattern: str, replacement: str, case: str) -> _Apply:
    try:
        matcher = re.compile(pattern, re.ASCII)
    except re.error as fault:
        raise ValueError(f"a pattern that can be compiled ({fault})") from None
    pieces = _pieces(replacement, matcher)

    def fill(match: re.Match[str]) -> str:
        return "".join(it if isinstance(it, str) else match[it] or "" for it in pieces)

    def apply(name: str) -> str | None:
        if matcher.fullmatch(name) is None:
            return None
        found = matcher.sub(fill, name)
        if case == "L":
            return found.lower()
        return found.upper() if case == "U" else found

    return apply


def _pieces(replacement: str, matcher: re.Pattern[str]) -> list[str | int]:
    """Return the literal texts and group numbers of a replacement, in order.

    A reference is a dollar and the longest run of digits that names an existing group.
    Without such a group, the dollar is literal.
    """
    pieces: list[str | int] = []
    at = 0
    while at < len(replacement):
        char = replacement[at]
        if char == "\\":
            pieces.append(replacement[at + 1 : at + 2])
            at += 2
            continue
        digits = re.match(r"\$(\d+)", replacement[at:], re.ASCII)
        group = digits[1] if digits else ""
        while group and int(group) > matcher.groups:
            group = group[:-1]
        pieces.append(int(group) if group else char)
        at += 1 + len(group)
    return pieces
