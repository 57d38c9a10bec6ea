"""Kafka's keys of its authorizers.

`broker.authorization` implements both authorizers of Kafka. Another class is Java code,
which this broker cannot run: the start fails.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from broker.protocol.config_key import ConfigType, Key, boolean
from broker.protocol.principal import KafkaPrincipal, parse_principal

AUTHORIZERS: Final = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)


def _authorizer(written: str) -> str:
    if written and written not in AUTHORIZERS:
        raise ValueError(f"empty, {' or '.join(AUTHORIZERS)}")
    return written


def _principals(written: str) -> tuple[KafkaPrincipal, ...]:
    """Return the principals between semicolons, which names cannot contain."""
    named = (each.strip() for each in written.split(";"))
    return tuple(parse_principal(each) for each in named if each)


AUTHORIZER_CLASS_NAME: Final = Key(
    name="authorizer.class.name",
    type=ConfigType.STRING,
    default="",
    parse=_authorizer,
    doc="Kafka's class of the authorizer; empty: every client may do everything.",
)
SUPER_USERS: Final[Key[tuple[KafkaPrincipal, ...]]] = Key(
    name="super.users",
    type=ConfigType.STRING,
    default=(),
    parse=_principals,
    doc="Principals that may do everything, as type:name with semicolons between.",
    internal=True,
)
ALLOW_EVERYONE_IF_NO_ACL_FOUND: Final = replace(
    boolean(
        "allow.everyone.if.no.acl.found",
        False,
        "Whether every client may use a resource that no ACL is about.",
    ),
    internal=True,
)
