"""DeleteTopics (20): delete topics by name or by id.

Versions: 1-6.

Behaviour:
- INVALID_REQUEST is returned if ``delete.topic.enable`` is false
  (TOPIC_DELETION_DISABLED from v3 on), as in Kafka. Each topic succeeds or fails
  independently.
- A topic that occurs more than once, also by name and by id, is not deleted.
- The response is sent once the topic is removed from clients' metadata, requests that
  waited for it have been answered, and the deletion is durable.
- REQUEST_TIMED_OUT is returned after ``timeout_ms``, NOT_CONTROLLER if another broker
  is controller.
- A quota on mutations (KIP-599) counts the partitions of each topic.
- The request can be preempted between partitions.

Version notes:
- v5 has error messages, v6 allows topic ids (KIP-516): exactly one of name and id.

Left out: nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import Final
from uuid import UUID

from broker.apis.common.access import (
    Check,
    allowed_on_topic,
    check_topic,
    in_handler,
)
from broker.apis.common.answer import NO_ID, to_ms
from broker.apis.common.api import Api, ErrorAnswer
from broker.authorization.acls import AclOperation, ResourceType
from broker.config import DELETE_TOPIC_ENABLE
from broker.node.broker import Broker
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode, KafkaError
from broker.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from broker.requests.classifier import ADMIN
from broker.requests.request import Request
from planes.slices import in_steps, preempt

# A name and an id, exactly one of which is set.
Wanted = tuple[str | None, UUID]


async def handle(
    request: Request, body: DeleteTopicsRequest, broker: Broker
) -> DeleteTopicsResponse:
    """Delete the topics one after the other."""
    if request.api_version >= 6:
        wanted = [
            (topic.name, topic.topic_id or NO_ID)
            async for topic in in_steps(body.topics)
        ]
    else:
        wanted = [(name, NO_ID) async for name in in_steps(body.topic_names)]
    wanted, rows = await _once(wanted, broker)
    for name, topic_id in wanted:
        try:
            broker.coordinator.controller.check_is_controller()
            _check(request, broker, name, topic_id)
            name, topic_id = await _delete(
                request, name, topic_id, to_ms(body.timeout), broker
            )
        except KafkaError as error:
            if error.code is ErrorCode.topic_authorization_failed and name is None:
                name = _visible_name(request, broker, topic_id)
            rows.append(
                DeletableTopicResult(
                    name=name,
                    topic_id=topic_id,
                    error_code=error.code,
                    error_message=error.message,
                )
            )
        else:
            rows.append(
                DeletableTopicResult(
                    name=name,
                    topic_id=topic_id,
                    error_code=ErrorCode.none,
                    error_message=None,
                )
            )
        await preempt()
    return DeleteTopicsResponse(responses=rows)


async def _once(
    wanted: list[Wanted], broker: Broker
) -> tuple[list[Wanted], list[DeletableTopicResult]]:
    """Return the topics that occur once, and rows that refuse the others."""
    times: Counter[Wanted] = Counter()
    async for each in in_steps(wanted):
        times[each] += 1
    async for name, topic_id in in_steps(wanted):
        known = None if name is None else broker.metadata_cache.topic(name)
        if known is None or topic_id != NO_ID:
            continue
        known_id = known.topic_id or NO_ID
        if (None, known_id) in times:
            # The topic occurs by name and by id.
            del times[None, known_id], times[name, topic_id]
            times[name, known_id] = 2
    refusal = KafkaError(ErrorCode.invalid_request, "a topic is given more than once")
    return (
        [each async for each, count in in_steps(times.items()) if count == 1],
        [
            DeletableTopicResult(
                name=name,
                topic_id=topic_id,
                error_code=refusal.code,
                error_message=refusal.message,
            )
            async for (name, topic_id), count in in_steps(times.items())
            if count > 1
        ],
    )


def _check(request: Request, broker: Broker, name: str | None, topic_id: UUID) -> None:
    """Raise if the client may not delete a topic.

    Deletion by name also requires DESCRIBE, since the response reveals whether the
    topic exists.
    """
    if name is None:
        known = None if topic_id == NO_ID else broker.metadata_cache.name(topic_id)
    else:
        check_topic(request, broker, AclOperation.DESCRIBE, name)
        known = name if broker.metadata_cache.topic(name) is not None else None
    if known is not None:
        check_topic(request, broker, AclOperation.DELETE, known)


def _visible_name(request: Request, broker: Broker, topic_id: UUID) -> str | None:
    """Return a topic's name if the client may describe it; ids are not secret."""
    name = broker.metadata_cache.name(topic_id)
    if name is not None and allowed_on_topic(
        request, broker, AclOperation.DESCRIBE, name
    ):
        return name
    return None


async def _delete(
    request: Request,
    name: str | None,
    topic_id: UUID,
    timeout_ms: int,
    broker: Broker,
) -> tuple[str, UUID]:
    """Delete one topic; return its name and its id."""
    if not broker.config[DELETE_TOPIC_ENABLE]:
        raise KafkaError(
            ErrorCode.topic_deletion_disabled
            if request.api_version >= 3
            else ErrorCode.invalid_request,
            "delete.topic.enable is false",
        )
    if (name is None) == (topic_id == NO_ID):
        raise KafkaError(
            ErrorCode.invalid_request, "expected either a topic name or a topic id"
        )
    if name is None:
        name = broker.metadata_cache.name(topic_id)
        if name is None:
            raise KafkaError(ErrorCode.unknown_topic_id, f"no topic has id {topic_id}")
    known = broker.metadata_cache.topic(name)
    stored = broker.coordinator.admin.topics.get(name)
    if stored is not None:
        broker.client_quotas.count_mutations(
            request,
            len(stored.leader_epochs),
            strict_since=API.quota_exceeded_since,
        )
    await broker.coordinator.admin.delete_topic(name, max(timeout_ms, 1))
    return name, (known and known.topic_id) or NO_ID


API: Final = Api(
    key=ApiKey.DELETE_TOPICS,
    versions=(1, 6),
    request_class=ADMIN,
    handle=handle,
    access=in_handler(
        Check(AclOperation.DELETE, ResourceType.TOPIC),
        Check(AclOperation.DESCRIBE, ResourceType.TOPIC),
    ),
    quota_exceeded_since=5,
    error_answer=ErrorAnswer(rows={"responses": ("topics", "topic_names")}),
)
