"""DescribeUserScramCredentials (50): list the users with SCRAM credentials.

Versions: 0-0.

Behaviour: the response has mechanisms and iterations of the requested users, or of all.
Salts and keys are never returned. A user without credentials is RESOURCE_NOT_FOUND, a
duplicate user DUPLICATE_RESOURCE, as in Kafka.

Version notes: there is one version.

Left out: nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from broker.apis.common.access import on_cluster
from broker.apis.common.api import Api
from broker.authorization.acls import AclOperation
from broker.coordination.coordinator_roles import ConfigKind, Configs
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from broker.protocol.sasl.scram import SCRAM_MECHANISMS, read_credential
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import in_steps


async def handle(
    request: Request, body: DescribeUserScramCredentialsRequest, broker: Broker
) -> DescribeUserScramCredentialsResponse:
    """Describe the users, one after the other."""
    present = broker.coordinator.admin.configs[ConfigKind.USER]
    named = Counter([user.name async for user in in_steps(body.users or ())])
    rows = []
    async for user in in_steps(named or sorted(present)):
        infos = _infos(present.get(user, {}))
        if named[user] > 1:
            row = _refused(
                user,
                ErrorCode.duplicate_resource,
                "Cannot describe SCRAM credentials for the same user twice in a single "
                f"request: {user}",
            )
        elif infos:
            row = DescribeUserScramCredentialsResult(
                user=user,
                error_code=ErrorCode.none,
                error_message=None,
                credential_infos=infos,
            )
        elif not named:
            continue  # a user with other configs only
        else:
            row = _refused(
                user,
                ErrorCode.resource_not_found,
                f"Attempt to describe a user credential that does not exist: {user}"
                if user
                else "Username must not be empty",
            )
        rows.append(row)
    return DescribeUserScramCredentialsResponse(
        error_code=ErrorCode.none, error_message=None, results=rows
    )


def _infos(configs: Configs) -> list[CredentialInfo]:
    """Return the public fields of a user's credentials."""
    return [
        CredentialInfo(
            mechanism=mechanism.number,
            iterations=read_credential(configs[name]).iterations,
        )
        for name, mechanism in SCRAM_MECHANISMS.items()
        if name in configs
    ]


def _refused(
    user: str, error: ErrorCode, message: str
) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(
        user=user, error_code=error, error_message=message, credential_infos=()
    )


API: Final = Api(
    key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    versions=(0, 0),
    request_class=ADMIN,
    handle=handle,
    access=on_cluster(AclOperation.DESCRIBE),
)
