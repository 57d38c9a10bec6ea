"""Conversion of a frame into a request: header, version check, class, declared API.

The processor converts each complete frame before it offers the request to the queue,
like Kafka's ``Processor.processCompletedReceives``. Only the header and single fields
at fixed places are read; the body is decoded by the handler, and charged to its flow.
The role of the request is checked against the connection here, so a denied request is
never decoded. If the connection is not authenticated, or its session has expired, any
request other than for authentication closes it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from broker.authentication.authenticator import SaslAuthenticator
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import MalformedFrame
from broker.protocol.wire.header import RequestHeader, parse_request_header
from broker.requests.classifier import Classifier
from broker.requests.request import DeclaredApi, Peer, Request, Response
from planes import Task

ServeRequest: TypeAlias = (
    "Callable[[Request], Response | Coroutine[Any, Any, Response]]"
)
Done: TypeAlias = Callable[[Task, Any], None]
Deadline: TypeAlias = Callable[[RequestHeader, bytes, int], int | None]

_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
# The header of a token without a header, after SaslHandshake version 0.
_BARE_TOKEN: Final = RequestHeader(int(ApiKey.SASL_AUTHENTICATE), 0, 0, "", 0)


class Intake:
    """Factory of requests, numbered in the order in which they were received.

    ``apis`` are the served APIs. A request with an unsupported version closes its
    connection, as in Kafka. ApiVersions is the exception: its handler responds to a
    version that is too high with the supported versions (KIP-511). ``deadline`` returns
    a request's own time limit; without it requests have none. ``numbers`` are shared
    with all other tasks of the same planes.
    """

    def __init__(
        self,
        serve_request: ServeRequest,
        classifier: Classifier,
        apis: Mapping[int, DeclaredApi],
        deadline: Deadline | None = None,
        numbers: Iterator[int] | None = None,
    ) -> None:
        self._serve_request = serve_request
        self._classify = classifier.classify
        # First and last version, and the first with an error for exceeded quotas.
        self._versions = {
            key: (*api.versions, api.quota_exceeded_since) for key, api in apis.items()
        }
        self._deadline = deadline
        self._numbers = itertools.count() if numbers is None else numbers

    def request(
        self, frame: bytes, peer: Peer, received_ns: int, done: Done
    ) -> Request:
        """Return the request in ``frame``.

        :raises MalformedFrame: if the header does not parse, or if the API or version
            is not served, or not admitted before authentication.
        """
        authenticator = peer.authenticator
        if authenticator is None:
            header = parse_request_header(frame)
        else:
            header = _admitted(frame, authenticator, received_ns)
        api_key, version, correlation_id, client_id, body_offset = header
        versions = self._versions.get(api_key)
        if versions is None:
            raise MalformedFrame(f"API {api_key} is not served")
        low, high, quota_exceeded_since = versions
        if not low <= version <= high and api_key != _API_VERSIONS:
            raise MalformedFrame(
                f"API {api_key} version {version}, expected {low} to {high}"
            )
        request_class, level, flow, cost_ns, is_denied = self._classify(
            header, frame, peer
        )
        # Positional arguments: keywords would cost a dictionary per call of a class.
        task = Task(
            next(self._numbers), request_class, level, flow, len(frame), cost_ns
        )
        task.received_ns = received_ns
        task.done = done
        if version >= quota_exceeded_since:
            task.can_be_refused = True
        if self._deadline is not None:
            task.deadline_ns = self._deadline(header, frame, received_ns)
        task.subject = request = Request(
            task,
            api_key,
            version,
            correlation_id,
            client_id,
            frame,
            body_offset,
            peer,
            is_denied,
        )
        task.serve = partial(self._serve_request, request)
        return request


def _admitted(
    frame: bytes, authenticator: SaslAuthenticator, received_ns: int
) -> RequestHeader:
    """Return the header of a request that the connection's state allows."""
    if authenticator.expects_bare_token:
        return _BARE_TOKEN
    header = parse_request_header(frame)
    if not authenticator.admits(header.api_key, received_ns):
        state = authenticator.state.name
        raise MalformedFrame(f"API {header.api_key} in the state {state}")
    return header
