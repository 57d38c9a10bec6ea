"""A login from settings: mechanism, JAAS line, token file; for clients and brokers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from broker.client.client_config import (
    CLIENT_ID,
    SASL_JAAS_CONFIG,
    SASL_MECHANISM,
    SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL,
    SECURITY_PROTOCOL,
    ClientConfig,
)
from broker.client.client_sasl import (
    BearerLogin,
    Login,
    PlainLogin,
    ScramLogin,
    authenticated,
)
from broker.client.network_client import Connect
from broker.protocol.errors import ConfigError
from broker.protocol.sasl.bearer import unsecured_token
from broker.protocol.sasl.jaas import LoginModule
from broker.protocol.sasl.scram import SCRAM_MECHANISMS

MECHANISMS: Final = ("PLAIN", *SCRAM_MECHANISMS, "OAUTHBEARER")
_SUBJECT: Final = "unsecuredLoginStringClaim_sub"
_LIFETIME: Final = "unsecuredLoginLifetimeSeconds"
_LIFETIME_S: Final = 3600


def make_login(
    mechanism: str, module: LoginModule | None, token_file: str | None, jaas_key: str
) -> Login:
    """Return the login of ``mechanism``; raise `ConfigError`, naming ``jaas_key``.

    A token is read from a file for each connection, or is created here without a
    signature.
    """
    options: Mapping[str, str] = {} if module is None else module.options
    if mechanism == "OAUTHBEARER":
        if token_file is not None:
            return BearerLogin(token=partial(_token_in, token_file))
        subject = options.get(_SUBJECT)
        lifetime = options.get(_LIFETIME, str(_LIFETIME_S))
        if not subject or not (lifetime.isascii() and lifetime.isdigit()):
            expected = f"a login module with {_SUBJECT}, or a file with a token"
            raise ConfigError(jaas_key, _shown(module), expected)
        return unsigned_login(subject, int(lifetime))
    name, password = options.get("username"), options.get("password")
    if not name or not password:
        expected = "a login module with username and password"
        raise ConfigError(jaas_key, _shown(module), expected)
    if mechanism == "PLAIN":
        return PlainLogin(name=name, password=password)
    scram = SCRAM_MECHANISMS[mechanism]
    return ScramLogin(scram_mechanism=scram, name=name, password=password)


def unsigned_login(subject: str, lifetime_s: int = _LIFETIME_S) -> Login:
    """Return the login of a name by unsigned tokens, which prove nothing."""
    return BearerLogin(token=partial(_unsigned, subject, lifetime_s))


def logged_in(config: ClientConfig, connect: Connect) -> Connect:
    """Wrap ``connect`` with authentication as ``security.protocol`` requires.

    Raises `ConfigError`.
    """
    if not config[SECURITY_PROTOCOL].startswith("SASL_"):
        return connect
    mechanism = config[SASL_MECHANISM]
    if mechanism not in MECHANISMS:
        expected = f"one of {', '.join(MECHANISMS)}"
        raise ConfigError(SASL_MECHANISM.name, mechanism, expected)
    login = make_login(
        mechanism,
        config[SASL_JAAS_CONFIG],
        config[SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL],
        SASL_JAAS_CONFIG.name,
    )
    return authenticated(connect, login, config[CLIENT_ID])


def _shown(module: LoginModule | None) -> str:
    return "" if module is None else "[hidden]"


def _token_in(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OSError(f"no token in {path}: {error}") from error


def _unsigned(subject: str, lifetime_s: int) -> str:
    # Rounded down, so that the time of issue is not ahead of a broker's clock.
    now_s = int(time.time())
    return unsecured_token({"sub": subject, "iat": now_s, "exp": now_s + lifetime_s})
