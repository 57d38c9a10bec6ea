"""The authorizer of a configuration."""

from __future__ import annotations

from collections.abc import Callable

from broker.authorization.authorizer import Authorizer
from broker.config import (
    ALLOW_EVERYONE_IF_NO_ACL_FOUND,
    AUTHORIZER_CLASS_NAME,
    SUPER_USERS,
    BrokerConfig,
)


def authorizer_of(config: BrokerConfig, now_ns: Callable[[], int]) -> Authorizer | None:
    """Return the authorizer; None means that every client may do everything."""
    if not config[AUTHORIZER_CLASS_NAME]:
        return None
    super_users = config[SUPER_USERS]
    return Authorizer(
        super_users=super_users,
        allows_unlisted=config[ALLOW_EVERYONE_IF_NO_ACL_FOUND],
        now_ns=now_ns,
    )
