"""JAAS lines, the form of credentials in Kafka's configuration.

    PACKAGE.PlainLoginModule required username="broker" password="..." user_alice="...";

Follows Kafka's ``JaasConfig``: a login module, a control flag, options, a semicolon.
Values may be in double or single quotes, with escapes. Errors and ``repr`` never show a
value, since most are secrets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"\s+|(?P<mark>[=;])|(?P<word>[^\s\"'=;]+)"
    r"|\"(?P<double>(?:[^\"\\\n]|\\.)*)\"|'(?P<single>(?:[^'\\\n]|\\.)*)'"
)
_ESCAPE: Final = re.compile(r"\\([0-7]{1,3}|.)", re.DOTALL)
_ESCAPED: Final = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "f": "\f",
    "b": "\b",
    "a": "\a",
    "v": "\v",
}
_EXPECTED: Final = 'MODULE required NAME="VALUE" ...;'
USER_PREFIX: Final = "user_"


@dataclass(frozen=True, slots=True, repr=False)
class LoginModule:
    """A login module and its options; the module's name without its package."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"<login module {self.name}>"

    @property
    def users(self) -> dict[str, str]:
        """Return the passwords of the options ``user_NAME``, by name."""
        return {
            name.removeprefix(USER_PREFIX): password
            for name, password in self.options.items()
            if name.startswith(USER_PREFIX)
        }


def parse_jaas(written: str) -> LoginModule:
    """Return the single login module of a JAAS line; raise ValueError.

    >>> parse_jaas('a.b.PlainLoginModule required username="me" password="x\\\\"y";')
    <login module PlainLoginModule>
    """
    tokens = list(_tokens(written))
    if len(tokens) < 3 or tokens[-1] != ("mark", ";"):
        raise ValueError(_EXPECTED)
    (_, module), (_, flag), *rest = tokens[:-1]
    if flag.lower() not in _FLAGS or len(rest) % 3:
        raise ValueError(_EXPECTED)
    options: dict[str, str] = {}
    for at in range(0, len(rest), 3):
        (kind, name), equals, (value_kind, value) = rest[at : at + 3]
        if "mark" in (kind, value_kind) or equals != ("mark", "="):
            raise ValueError(_EXPECTED)
        options[name] = value
    return LoginModule(module.rpartition(".")[2], options)


def _tokens(written: str) -> Iterator[tuple[str, str]]:
    """Yield kind and text of each token; the kind is "mark" or "text"."""
    at = 0
    while at < len(written):
        found = _TOKEN.match(written, at)
        if found is None:
            raise ValueError(f"{_EXPECTED}, with every quote closed")
        at = found.end()
        if found["mark"] is not None:
            yield "mark", found["mark"]
        elif found["word"] is not None:
            yield "text", found["word"]
        else:
            quoted = found["double"] if found["double"] is not None else found["single"]
            if quoted is not None:
                yield "text", _ESCAPE.sub(_unescaped, quoted)


def _unescaped(found: re.Match[str]) -> str:
    escape = found[1]
    if escape.isdigit():
        return chr(int(escape, 8)) if escape[0] in "01234567" else escape
    return _ESCAPED.get(escape, escape)
