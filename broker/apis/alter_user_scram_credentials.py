"""AlterUserScramCredentials (51): add, change and remove SCRAM credentials.

Versions: 0-0.

Behaviour:
- Each user is altered completely or not at all, independently of the others. A
  successful change is durable and in effect before the response.
- The client sends the salted password. The broker derives and stores two keys, and
  discards the salted password.
- Iterations are 4,096 to 16,384 (otherwise UNACCEPTABLE_CREDENTIAL). A duplicate
  mechanism of a user is DUPLICATE_RESOURCE, the deletion of a missing credential
  RESOURCE_NOT_FOUND, an unknown mechanism UNSUPPORTED_SASL_MECHANISM.
- In a cluster only the controller serves this API; other brokers return NOT_CONTROLLER.

Version notes: there is one version.

Left out: nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.apis.common.access import Check, allowed_on_cluster, denied, in_handler
from broker.apis.common.answer import NO_ERROR
from broker.apis.common.api import Api, ErrorAnswer
from broker.authorization.acls import AclOperation, ResourceType
from broker.coordination.coordinator_roles import ConfigKind
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialUpsertion,
)
from broker.protocol.sasl.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_BY_NUMBER,
    write_credential,
)
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import in_steps, preempt


@dataclass(slots=True)
class _Wanted:
    """A user's changes by mechanism (None: remove), or the reason of a refusal."""

    changes: dict[str, str | None] = field(default_factory=dict)
    refusal: KafkaError | None = None

    def add(self, mechanism: int, user: str, credential: str | None) -> None:
        if not user:
            self.refuse(ErrorCode.unacceptable_credential, "Username must not be empty")
        elif mechanism not in SCRAM_BY_NUMBER:
            error = ErrorCode.unsupported_sasl_mechanism
            self.refuse(error, "Unknown SCRAM mechanism")
        elif SCRAM_BY_NUMBER[mechanism].sasl_name in self.changes:
            self.refuse(
                ErrorCode.duplicate_resource,
                "A user credential cannot be altered twice in the same request",
            )
        else:
            self.changes[SCRAM_BY_NUMBER[mechanism].sasl_name] = credential

    def refuse(self, error: ErrorCode, message: str) -> None:
        """Keep the first reason."""
        self.refusal = self.refusal or KafkaError(error, message)


async def handle(
    request: Request, body: AlterUserScramCredentialsRequest, broker: Broker
) -> AlterUserScramCredentialsResponse:
    """Alter the users, one after the other."""
    wanted: dict[str, _Wanted] = {}
    async for deletion in in_steps(body.deletions):
        of_user = wanted.setdefault(deletion.name, _Wanted())
        of_user.add(deletion.mechanism, deletion.name, None)
    async for upsertion in in_steps(body.upsertions):
        _add(wanted.setdefault(upsertion.name, _Wanted()), upsertion)
    rows = []
    may_alter = allowed_on_cluster(request, broker, AclOperation.ALTER)
    for user, of_user in wanted.items():
        outcome = of_user.refusal or NO_ERROR
        if not may_alter:
            outcome = denied(ResourceType.CLUSTER)
        elif of_user.refusal is None:
            try:
                broker.coordinator.controller.check_is_controller()
                await _alter(user, of_user.changes, broker)
            except KafkaError as error:
                outcome = error
        rows.append(
            AlterUserScramCredentialsResult(
                user=user, error_code=outcome.code, error_message=outcome.message
            )
        )
        await preempt()
    return AlterUserScramCredentialsResponse(results=rows)


def _add(wanted: _Wanted, upsertion: ScramCredentialUpsertion) -> None:
    mechanism = SCRAM_BY_NUMBER.get(upsertion.mechanism)
    credential = None
    if mechanism is not None:
        credential = write_credential(
            mechanism.credential(
                upsertion.salted_password, upsertion.salt, upsertion.iterations
            )
        )
    wanted.add(upsertion.mechanism, upsertion.name, credential)
    if upsertion.iterations < ITERATIONS_MIN:
        wanted.refuse(ErrorCode.unacceptable_credential, "Too few iterations")
    elif upsertion.iterations > ITERATIONS_MAX:
        wanted.refuse(ErrorCode.unacceptable_credential, "Too many iterations")


async def _alter(user: str, changes: Mapping[str, str | None], broker: Broker) -> None:
    """Apply a user's changes, with retries after concurrent changes."""
    admin, done = broker.coordinator.admin, False
    while not done:
        present = admin.configs[ConfigKind.USER].get(user, {})
        configs = dict(present)
        for mechanism, credential in changes.items():
            if credential is not None:
                configs[mechanism] = credential
            elif configs.pop(mechanism, None) is None:
                raise KafkaError(
                    ErrorCode.resource_not_found,
                    "Attempt to delete a user credential that does not exist",
                )
        done = await admin.set_configs(ConfigKind.USER, user, configs, present)


API: Final = Api(
    key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    versions=(0, 0),
    request_class=ADMIN,
    handle=handle,
    access=in_handler(Check(AclOperation.ALTER, ResourceType.CLUSTER)),
    error_answer=ErrorAnswer(rows={"results": ("deletions", "upsertions")}),
)
