"""Keys of SASL: the mechanisms of a listener, their credentials, and sessions.

Names, defaults and ranges are Kafka's. Credentials of one mechanism on one listener
have the prefix ``listener.name.NAME.MECHANISM.`` and Kafka's JAAS format.
"""

from __future__ import annotations

from typing import Final

from broker.protocol.config_key import (
    INT_MAX,
    ConfigType,
    Key,
    integer,
    long,
    optional_text,
    text,
    words,
)
from broker.protocol.sasl.sasl_keys import file_url, jaas_line
from broker.protocol.sasl.scram import SCRAM_MECHANISMS

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
# The login module of each served mechanism.
LOGIN_MODULES: Final = {
    PLAIN: "PlainLoginModule",
    **dict.fromkeys(SCRAM_MECHANISMS, "ScramLoginModule"),
    OAUTHBEARER: "OAuthBearerLoginModule",
}
_VALIDATOR: Final = "OAuthBearerValidatorCallbackHandler"


def _callback_handler(name: str, doc: str) -> Key[str | None]:
    def parse(written: str) -> str | None:
        if written and written.rpartition(".")[2] != _VALIDATOR:
            raise ValueError(f"{_VALIDATOR}, the only one that is served")
        return written or None

    return Key(name=name, type=ConfigType.CLASS, default=None, parse=parse, doc=doc)


SASL_ENABLED_MECHANISMS: Final = words(
    "sasl.enabled.mechanisms",
    ("GSSAPI",),
    "Mechanisms that clients may choose on SASL listeners.",
)
SASL_JAAS_CONFIG: Final = jaas_line(
    "sasl.jaas.config",
    "Credentials of one mechanism on one listener, behind "
    "listener.name.NAME.MECHANISM.; users as user_NAME, and username and password of "
    "this broker itself.",
)
SASL_MECHANISM_INTER_BROKER_PROTOCOL: Final = text(
    "sasl.mechanism.inter.broker.protocol",
    "GSSAPI",
    "The mechanism by which this broker authenticates to other brokers.",
)
CONNECTIONS_MAX_REAUTH_MS: Final = long(
    "connections.max.reauth.ms",
    0,
    "The longest session without authentication anew; 0: only credentials that expire "
    "end sessions.",
)
SASL_SERVER_MAX_RECEIVE_SIZE: Final = integer(
    "sasl.server.max.receive.size",
    524_288,
    "The largest request of a client before it is authenticated.",
)
SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL: Final = file_url(
    "sasl.oauthbearer.token.endpoint.url",
    "A file with the bearer token of this broker itself, read for each connection.",
)
DOORKEEPER_SASL_TIMEOUT_MS: Final = long(
    "doorkeeper.sasl.timeout.ms",
    30_000,
    "The longest time that a connection may take to authenticate.",
    low=1,
)
SASL_SERVER_CALLBACK_HANDLER_CLASS: Final = _callback_handler(
    "sasl.server.callback.handler.class",
    "OAuthBearerValidatorCallbackHandler, which needs "
    "sasl.oauthbearer.jwks.endpoint.url; otherwise the mechanism's own.",
)
SASL_OAUTHBEARER_JWKS_ENDPOINT_URL: Final = file_url(
    "sasl.oauthbearer.jwks.endpoint.url",
    "A file of JSON Web Keys, read at the start; without it tokens need no signature.",
)
SASL_OAUTHBEARER_EXPECTED_AUDIENCE: Final = words(
    "sasl.oauthbearer.expected.audience",
    (),
    "Audiences of which a signed token must name one; empty: any.",
)
SASL_OAUTHBEARER_EXPECTED_ISSUER: Final = optional_text(
    "sasl.oauthbearer.expected.issuer",
    "The issuer that a signed token must name; absent: any.",
)
SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS: Final = integer(
    "sasl.oauthbearer.clock.skew.seconds",
    30,
    "Tolerance for the times in signed tokens.",
    low=0,
    high=INT_MAX // 1000,
)
SASL_OAUTHBEARER_SCOPE_CLAIM_NAME: Final = text(
    "sasl.oauthbearer.scope.claim.name",
    "scope",
    "The claim of a signed token that holds its scopes.",
)
SASL_OAUTHBEARER_SUB_CLAIM_NAME: Final = text(
    "sasl.oauthbearer.sub.claim.name",
    "sub",
    "The claim of a signed token that holds the user's name.",
)

# Keys that may be set per listener.
SASL_OF_A_LISTENER: Final = frozenset(
    {
        SASL_ENABLED_MECHANISMS,
        CONNECTIONS_MAX_REAUTH_MS,
        SASL_SERVER_MAX_RECEIVE_SIZE,
        SASL_SERVER_CALLBACK_HANDLER_CLASS,
        SASL_OAUTHBEARER_JWKS_ENDPOINT_URL,
        SASL_OAUTHBEARER_EXPECTED_AUDIENCE,
        SASL_OAUTHBEARER_EXPECTED_ISSUER,
        SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS,
        SASL_OAUTHBEARER_SCOPE_CLAIM_NAME,
        SASL_OAUTHBEARER_SUB_CLAIM_NAME,
    }
)
# Keys that may also have the prefix ``listener.name.NAME.MECHANISM.``.
OF_A_MECHANISM: Final = frozenset(
    {
        SASL_JAAS_CONFIG,
        CONNECTIONS_MAX_REAUTH_MS,
        SASL_SERVER_CALLBACK_HANDLER_CLASS,
    }
)
