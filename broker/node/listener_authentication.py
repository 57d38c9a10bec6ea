"""Authentication by the configuration: the mechanisms of each listener.

SCRAM credentials are configs of users, which the coordinator stores: in the registry of
a single broker, in ZooKeeper for a cluster. A single broker creates its first users
from the options ``user_NAME`` of ScramLoginModule, if they have no credential yet.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from broker.authentication import tokens
from broker.authentication.authenticator import (
    MakeServer,
    SaslAuthenticator,
    SaslSettings,
)
from broker.authentication.bearer_server import BearerServer
from broker.authentication.plain_server import PlainServer
from broker.authentication.scram_server import ScramServer
from broker.authentication.tokens import Claims, ValidateToken
from broker.config import (
    CONNECTION_FAILED_AUTHENTICATION_DELAY_MS,
    CONNECTIONS_MAX_REAUTH_MS,
    OAUTHBEARER,
    PLAIN,
    SASL_ENABLED_MECHANISMS,
    SASL_JAAS_CONFIG,
    SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS,
    SASL_OAUTHBEARER_EXPECTED_AUDIENCE,
    SASL_OAUTHBEARER_EXPECTED_ISSUER,
    SASL_OAUTHBEARER_JWKS_ENDPOINT_URL,
    SASL_OAUTHBEARER_SCOPE_CLAIM_NAME,
    SASL_OAUTHBEARER_SUB_CLAIM_NAME,
    SASL_SERVER_MAX_RECEIVE_SIZE,
    BrokerConfig,
)
from broker.config.sasl_checks import jaas_key
from broker.coordination.coordinator_roles import AdminManager, ConfigKind, Configs
from broker.protocol.errors import ConfigError
from broker.protocol.sasl.scram import (
    ITERATIONS_MIN,
    SCRAM_MECHANISMS,
    ScramCredential,
    ScramMechanism,
    read_credential,
    write_credential,
)

_NONCE_BYTES: Final = 24
_SALT_BYTES: Final = 20
_EXTRA: Final = "doorkeeper[oauth]"


class Authentication:
    """The authenticators of a broker's connections."""

    def __init__(
        self,
        config: BrokerConfig,
        admin: AdminManager,
        *,
        now_ns: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._admin = admin
        self._now_ns = now_ns
        self._now_ms = now_ms
        # Drawn at each start, so that the salts of unknown users differ between runs.
        self._decoy_key = secrets.token_bytes(32)

    def of_listener(self, listener: str) -> Callable[[], SaslAuthenticator] | None:
        """Return the factory of a listener's authenticators; None if it needs none.

        :raises ConfigError: if a required file cannot be read.
        """
        config = self._config
        names = {each.name for each in config.listeners if each.uses_sasl}
        if listener.upper() not in names:
            return None
        mechanisms = config.on_listener(listener, SASL_ENABLED_MECHANISMS)
        settings = SaslSettings(
            mechanisms={each: self._server(listener, each) for each in mechanisms},
            reauth_ms={
                each: config.of_mechanism(listener, each, CONNECTIONS_MAX_REAUTH_MS)
                for each in mechanisms
            },
            frame_bytes_max=config.on_listener(listener, SASL_SERVER_MAX_RECEIVE_SIZE),
            failure_delay_ns=config[CONNECTION_FAILED_AUTHENTICATION_DELAY_MS]
            * 1_000_000,
        )
        return partial(SaslAuthenticator, settings, self._now_ns, self._now_ms)

    def first_users(self) -> Mapping[str, Configs]:
        """Return new credentials for ScramLoginModule's users without credentials."""
        wanted: dict[str, dict[str, str]] = {}
        for mechanism, user, password in self._first_users():
            name = mechanism.sasl_name
            if name not in self._of_user(user):
                salt = secrets.token_bytes(_SALT_BYTES)
                salted = mechanism.salted_password(password, salt, ITERATIONS_MIN)
                credential = mechanism.credential(salted, salt, ITERATIONS_MIN)
                wanted.setdefault(user, {})[name] = write_credential(credential)
        return wanted

    def _first_users(self) -> Iterator[tuple[ScramMechanism, str, str]]:
        """Yield mechanism, user and password of ScramLoginModule's options."""
        config = self._config
        for listener in config.listeners:
            if listener.uses_sasl:
                enabled = config.on_listener(listener.name, SASL_ENABLED_MECHANISMS)
                for name in enabled:
                    if name in SCRAM_MECHANISMS:
                        users = self._users(listener.name, name)
                        for user, password in users.items():
                            yield SCRAM_MECHANISMS[name], user, password

    def _users(self, listener: str, mechanism: str) -> Mapping[str, str]:
        module = self._config.of_mechanism(listener, mechanism, SASL_JAAS_CONFIG)
        return {} if module is None else module.users

    def _server(self, listener: str, mechanism: str) -> MakeServer:
        """Return the factory of the server side of one exchange."""
        if mechanism == PLAIN:
            return partial(PlainServer, self._users(listener, mechanism))
        if mechanism == OAUTHBEARER:
            return partial(BearerServer, self._validator(listener), self._now_ms)
        scram = SCRAM_MECHANISMS[mechanism]
        find = partial(self._credential, mechanism)

        def make() -> ScramServer:
            return ScramServer(
                scram,
                find,
                nonce=secrets.token_urlsafe(_NONCE_BYTES),
                decoy_key=self._decoy_key,
            )

        return make

    def _credential(self, mechanism: str, user: str) -> ScramCredential | None:
        """Return a user's credential; None if it is missing or unreadable."""
        written = self._of_user(user).get(mechanism)
        try:
            return None if written is None else read_credential(written)
        except ValueError:
            return None

    def _of_user(self, user: str) -> Configs:
        return self._admin.configs[ConfigKind.USER].get(user, {})

    def _validator(self, listener: str) -> ValidateToken:
        config = self._config
        path = config.on_listener(listener, SASL_OAUTHBEARER_JWKS_ENDPOINT_URL)
        if path is None:
            return tokens.unsecured(self._unsecured_claims(listener))
        key = SASL_OAUTHBEARER_JWKS_ENDPOINT_URL.name
        audiences = config.on_listener(listener, SASL_OAUTHBEARER_EXPECTED_AUDIENCE)
        claims = Claims(
            subject=config.on_listener(listener, SASL_OAUTHBEARER_SUB_CLAIM_NAME),
            scope=config.on_listener(listener, SASL_OAUTHBEARER_SCOPE_CLAIM_NAME),
            audiences=frozenset(audiences),
            issuer=config.on_listener(listener, SASL_OAUTHBEARER_EXPECTED_ISSUER),
            skew_ms=config.on_listener(listener, SASL_OAUTHBEARER_CLOCK_SKEW_SECONDS)
            * 1000,
            needs_issue_time=True,
        )
        try:
            return tokens.signed(Path(path).read_bytes(), claims)
        except ModuleNotFoundError as error:
            expected = f"{_EXTRA} to be installed, to check signatures"
            raise ConfigError(key, path, expected) from error
        except (OSError, ValueError) as error:
            expected = f"a file with a JSON Web Key Set ({error})"
            raise ConfigError(key, path, expected) from error

    def _unsecured_claims(self, listener: str) -> Claims:
        """Return the claims required by OAuthBearerLoginModule's options."""
        module = self._config.of_mechanism(listener, OAUTHBEARER, SASL_JAAS_CONFIG)
        options: Configs = {} if module is None else module.options
        skew = options.get("unsecuredValidatorAllowableClockSkewMs", "").strip() or "0"
        if not (skew.isascii() and skew.isdigit()):
            key = jaas_key(listener, OAUTHBEARER)
            expected = "unsecuredValidatorAllowableClockSkewMs of 0 or more"
            raise ConfigError(key, "[hidden]", expected)
        return Claims(
            subject=options.get("unsecuredValidatorPrincipalClaimName", "").strip()
            or "sub",
            scope=options.get("unsecuredValidatorScopeClaimName", "").strip()
            or "scope",
            required_scope=frozenset(
                options.get("unsecuredValidatorRequiredScope", "").split()
            ),
            skew_ms=int(skew),
        )
