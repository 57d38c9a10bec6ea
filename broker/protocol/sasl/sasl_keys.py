"""Kinds of configuration keys for SASL, for brokers and clients."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from broker.protocol.config_key import ConfigType, Key
from broker.protocol.sasl.jaas import LoginModule, parse_jaas


def jaas_line(name: str, doc: str) -> Key[LoginModule | None]:
    """Return a key whose value is a login module; responses and errors hide it."""

    def parse(written: str) -> LoginModule | None:
        return parse_jaas(written) if written else None

    return Key(name=name, type=ConfigType.PASSWORD, default=None, parse=parse, doc=doc)


def file_url(name: str, doc: str) -> Key[str | None]:
    """Return a key whose value is the path of a ``file:`` URL."""

    def parse(written: str) -> str | None:
        if not written:
            return None
        url = urlsplit(written)
        if url.scheme != "file" or url.netloc or not url.path:
            raise ValueError("a URL of a local file, such as file:///etc/jwks.json")
        return unquote(url.path)

    return Key(name=name, type=ConfigType.STRING, default=None, parse=parse, doc=doc)
