"""Kafka's keys of unsupported security features: the start fails if one is set.

Authentication is by SASL (`broker.config.sasl_listener_keys`), without Kerberos and
delegation tokens, or by OpenSSL's TLS (`broker.tls.keys`). An operator who sets other
security keys relies on them, so ignoring them would be unsafe. Empty values are
allowed, because some are Kafka's defaults.
"""

from __future__ import annotations

from typing import Final

from broker.protocol.config_key import ConfigType, Key

# A star: not listed by Kafka 3.9, being of another release or of an authorizer.
_FEATURES: Final = {
    "it belongs to a part of authentication that is not served": """
        delegation.token.master.key delegation.token.secret.key principal.builder.class
        sasl.client.callback.handler.class sasl.kerberos.kinit.cmd
        sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules
        sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
        sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class
        sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
        sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
        sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
        sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
        sasl.oauthbearer.assertion.algorithm* sasl.oauthbearer.assertion.claim.aud*
        sasl.oauthbearer.assertion.claim.exp.seconds*
        sasl.oauthbearer.assertion.claim.iss*
        sasl.oauthbearer.assertion.claim.jti.include*
        sasl.oauthbearer.assertion.claim.nbf.seconds*
        sasl.oauthbearer.assertion.claim.sub* sasl.oauthbearer.assertion.file*
        sasl.oauthbearer.assertion.private.key.file*
        sasl.oauthbearer.assertion.private.key.passphrase*
        sasl.oauthbearer.assertion.template.file*
        sasl.oauthbearer.client.credentials.client.id*
        sasl.oauthbearer.client.credentials.client.secret*
        sasl.oauthbearer.header.urlencode* sasl.oauthbearer.jwks.endpoint.refresh.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
        sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
        sasl.oauthbearer.jwt.retriever.class* sasl.oauthbearer.jwt.validator.class*
        sasl.oauthbearer.scope*
        """,
    "Java's TLS is not served: OpenSSL's is": """
        ssl.engine.factory.class ssl.keymanager.algorithm ssl.provider
        ssl.secure.random.implementation ssl.trustmanager.algorithm
        """,
}
# Kafka's keys of type PASSWORD: neither DescribeConfigs nor an error may return them.
_SECRETS: Final = frozenset(
    {
        "delegation.token.master.key",
        "delegation.token.secret.key",
        "sasl.oauthbearer.client.credentials.client.secret",
    }
)


def _unserved(name: str, why: str, *, internal: bool) -> Key[str | None]:
    """Return a key whose value may only be empty."""

    def parse(written: str) -> str | None:
        if written:
            raise ValueError(f"no such key, as {why}")
        return None

    return Key(
        name=name,
        type=ConfigType.PASSWORD if name in _SECRETS else ConfigType.STRING,
        default=None,
        parse=parse,
        doc=f"Refused: {why}.",
        inert=True,
        internal=internal,
    )


KEYS: Final[tuple[Key[str | None], ...]] = tuple(
    _unserved(name.rstrip("*"), why, internal=name.endswith("*"))
    for why, names in _FEATURES.items()
    for name in names.split()
)
