"""The attempts of a run, each with a number that is its correlation id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from broker.protocol.errors import ErrorCode
from experiments.records.attempts import NO_REQUEST, Attempt
from experiments.records.recording import NEVER

NONE = -1


@dataclass(slots=True, kw_only=True)
class Try:
    """An attempt in progress; its fields are those of `Attempt`."""

    number: int
    broker: int
    api_key: int
    request_id: int = NO_REQUEST
    partition: int = NONE
    acks: int = 0
    records: int = 0
    intended_ns: int = NEVER
    sent_ns: int = NEVER
    client_done_ns: int = NEVER
    error_code: int = int(ErrorCode.unknown_server_error)
    base_offset: int = NONE
    leader: int = NONE


class AttemptLog:
    """All attempts of a run, in the order of their starts."""

    def __init__(self) -> None:
        self.tries: list[Try] = []

    def begin(
        self, api_key: int, broker: int, intended_ns: int, request_id: int = NO_REQUEST
    ) -> Try:
        """Start an attempt and assign its number."""
        begun = Try(
            number=len(self.tries),
            broker=broker,
            api_key=api_key,
            request_id=request_id,
            intended_ns=intended_ns,
        )
        self.tries.append(begun)
        return begun

    def last_tries(self, requests: int, since_ns: int) -> list[Try | None]:
        """Return the last attempt at each request of a trace.

        Attempts due before ``since_ns`` belong to a rehearsal.
        """
        last: list[Try | None] = [None] * requests
        for each in self.tries:
            if each.request_id != NO_REQUEST and each.intended_ns >= since_ns:
                last[each.request_id] = each
        return last

    def attempts(self, origin_ns: int, found: Mapping[int, int]) -> list[Attempt]:
        """Return the attempts, with instants relative to the origin.

        ``found`` is the number of each attempt's records in the last leader's log.
        """

        def since(stamp_ns: int) -> int:
            return NEVER if stamp_ns == NEVER else stamp_ns - origin_ns

        return [
            Attempt(
                request_id=it.request_id,
                broker=it.broker,
                api_key=it.api_key,
                partition=it.partition,
                acks=it.acks,
                records=it.records,
                intended_ns=since(it.intended_ns),
                sent_ns=since(it.sent_ns),
                client_done_ns=since(it.client_done_ns),
                error_code=it.error_code,
                base_offset=it.base_offset,
                leader=it.leader,
                kept=int(found.get(it.number, 0) == it.records) if it.records else NONE,
            )
            for it in self.tries
        ]
