"""Failures of handlers: each has one response, one log event, one count.

As Kafka's ``KafkaApis.handle``, which catches every ``Throwable``, respond with
``UNKNOWN_SERVER_ERROR``, in the API and version of the request. If fields repeated from
the request make the encoding fail, send a response without repeated fields. If that
fails too, close the connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from logging import getLogger

from broker.apis.common.api import Api
from broker.handling.error_answer import bare_error, error_answer
from broker.log.steps import Steps
from broker.node.broker import Broker
from broker.observation.logs import fields
from broker.observation.metric import Metric
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ErrorCode
from broker.protocol.wire.codec import decode_in_steps
from broker.requests.request import CLOSE, Request, Response

logger = getLogger(__name__)


class Failures:
    """Responses to requests whose handlers failed, and their counts by API."""

    def __init__(self) -> None:
        self.counts: Counter[ApiKey] = Counter()

    def contain(
        self,
        api: Api,
        request: Request,
        broker: Broker,
        error: Exception,
        body: object | None = None,
    ) -> Steps[Response]:
        """Return, in steps, the response to a request whose handler raised ``error``.

        ``body`` is the request's body, if it has been decoded.
        """
        self.counts[api.key] += 1
        logger.error(
            "a request has failed",
            exc_info=error,
            extra=fields(
                api=api.key.api_name,
                version=request.api_version,
                correlation_id=request.correlation_id,
                client_id=request.client_id,
                request=request.task.number,
            ),
        )
        code = ErrorCode.unknown_server_error
        for make in (partial(_repeating, body), bare_error):
            try:
                return (yield from make(api, request, code, broker))
            except Exception as again:  # the next response has fewer fields
                logger.warning("an error could not be answered", exc_info=again)
        return CLOSE

    def metrics(self) -> Iterator[Metric]:
        """Iterate over Kafka's ``ErrorsPerSec`` of failed requests, as counts."""
        for key, count in sorted(self.counts.items()):
            yield Metric(
                name="kafka_network_requestmetrics_errors",
                kind="counter",
                value=count,
                labels={"request": key.api_name, "error": "UNKNOWN_SERVER_ERROR"},
                suffix="_total",
            )


def _repeating(
    body: object | None, api: Api, request: Request, error: ErrorCode, broker: Broker
) -> Steps[Response]:
    if body is None:
        body = yield from decode_in_steps(
            request.api_key,
            request.api_version,
            request.frame,
            request.body_offset,
            *api.items_bound(request),
        )
    return (yield from error_answer(api, request, body, error, broker))
