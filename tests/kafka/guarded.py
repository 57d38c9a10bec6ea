"""Brokers with SASL and an authorizer, and clients that authenticate as users.

A connection belongs to the user in its name: ``alice`` and ``alice-2`` to ``alice``.
The connection ``main``, for requests without a name, belongs to ``root``.
"""

from __future__ import annotations

from typing import Final

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from tests.kafka.peer import Peer

USERS: Final = ("root", "alice", "eve")
JAAS: Final = "listener_name_plaintext_{}_sasl_jaas_config"
_LOGIN: Final = "org.apache.kafka.common.security.{} required {};"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def password(user: str) -> str:
    """Return a user's password."""
    return f"{user}-secret"


# Settings of both brokers. Kafka's controller is ANONYMOUS to itself.
SASL: Final = {
    "listener_security_protocol_map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "inter_broker_listener_name": "PLAINTEXT",
    "sasl_mechanism_inter_broker_protocol": "PLAIN",
    "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256",
    JAAS.format("plain"): _LOGIN.format(
        "plain.PlainLoginModule",
        " ".join(
            [
                f'username="root" password="{password("root")}"',
                *(f'user_{user}="{password(user)}"' for user in USERS),
            ]
        ),
    ),
    JAAS.format("scram-sha-256"): _LOGIN.format("scram.ScramLoginModule", "").replace(
        " ;", ";"
    ),
}
ACLS: Final = {
    "authorizer_class_name": AUTHORIZER,
    "super_users": "User:root;User:ANONYMOUS",
}


class UserPeer(Peer):
    """A peer whose connections authenticate with PLAIN."""

    def _begin(self, connection: str) -> None:
        user = "root" if connection == "main" else connection.partition("-")[0]
        chosen = self.ask(
            ApiKey.SASL_HANDSHAKE, 1, connection=connection, mechanism="PLAIN"
        )
        assert chosen.error_code is ErrorCode.none, chosen
        token = f"\0{user}\0{password(user)}".encode()
        found = self.ask(
            ApiKey.SASL_AUTHENTICATE, 2, connection=connection, auth_bytes=token
        )
        assert found.error_code is ErrorCode.none, found
