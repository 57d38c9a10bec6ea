"""Measures of an election under load: numbers of a run, as SQL over attempts.

All are better when lower. *The old leader* is the broker that leads when the load
begins; *the decision* is the instant at which the controller decides the first of the
election's partitions. Times without an end in the run are infinite.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

_PRODUCE, _METADATA, _LEADER_AND_ISR, _UPDATE_METADATA = 0, 3, 4, 6
_NOT_LEADER, _TIMED_OUT = 6, 7
# A refusal is answered at once; an attempt that fails later had been appended.
_APPENDED: Final = (
    "(broker_error_code = 0 OR remote_done_ns IS NULL OR "
    "remote_done_ns > local_done_ns)"
)


class IncidentMeasure(NamedTuple):
    """One number per run: its machine-readable name, heading, unit and meaning.

    ``margin`` is the relative difference below which two arms are equivalent.
    """

    name: str
    label: str
    unit: str
    meaning: str
    margin: float = 0.0

    @property
    def heading(self) -> str:
        """Return the label with the unit."""
        return f"{self.label} [{self.unit}]" if self.unit else self.label


_MEASURES: Final = (
    IncidentMeasure(
        "step_down_ms",
        "time to step down",
        "ms",
        "from the decision until the old leader has obeyed the last of the "
        "election's LEADER_AND_ISRs",
    ),
    IncidentMeasure(
        "accepted",
        "records appended too late",
        "",
        "records that the old leader appended after the decision",
    ),
    IncidentMeasure(
        "lost",
        "records lost, acks=1",
        "",
        "records acknowledged with acks=1 that the new leader does not have",
    ),
    IncidentMeasure(
        "lost_by_all",
        "records lost, acks=all",
        "",
        "records acknowledged with acks=all that the new leader does not have: "
        "never, or Kafka's promise is broken",
    ),
    IncidentMeasure(
        "timed_out",
        "writes timed out",
        "",
        "attempts to write, of any time after the decision, that got no answer "
        "in time, or REQUEST_TIMED_OUT (7)",
    ),
    IncidentMeasure(
        "failed_fast",
        "writes answered NOT_LEADER",
        "",
        "attempts to write that were answered NOT_LEADER_OR_FOLLOWER (6)",
    ),
    IncidentMeasure(
        "failed_otherwise",
        "writes with other errors",
        "",
        "attempts to write that failed with any other error",
    ),
    IncidentMeasure(
        "unwritable_ms",
        "time without acknowledgement",
        "ms",
        "longest time, over partitions, for which a write with acks=all was due: "
        "from the last one that the old leader acknowledged (the decision, if that "
        "was earlier) to the first that another did",
    ),
    IncidentMeasure(
        "stale_ms",
        "time of stale metadata",
        "ms",
        "from the decision to the last METADATA answer that named the old leader",
    ),
    IncidentMeasure(
        "recover_ms",
        "time to recover",
        "ms",
        "from the decision until every write is done that was due before all "
        "partitions could be written to again",
    ),
)


def measures_of(margin: float) -> tuple[IncidentMeasure, ...]:
    """Return the measures in the order of the report."""
    return tuple(each._replace(margin=margin) for each in _MEASURES)


def of_write(old_leader: int) -> Mapping[str, str]:
    """Return SQL over the attempts of one write: when each leader acknowledged it."""
    done, at = "error_code = 0", "client_done_ns"
    return {
        "old_ns": f"max({_when(f'{done} AND broker = {old_leader}', at)})",
        "new_ns": f"min({_when(f'{done} AND broker != {old_leader}', at)})",
        "intended_ns": "min(intended_ns)",
    }


OF_PARTITION: Final = MappingProxyType(
    {
        "old_ns": "max(old_ns)",
        "new_ns": "min(new_ns)",
        # Writes that the old leader has not acknowledged; null if there are none.
        "due_ns": "min(IF(old_ns IS NULL, intended_ns, NULL))",
    }
)


def of_run(old_leader: int, timeout_ns: int) -> Mapping[str, str]:
    """Return SQL over the attempts of one run, each with ``decided_ns``.

    The columns include ``back_ns``: when the last partition accepted a write again.
    """
    write = f"api_key = {_PRODUCE}"
    after = f"coalesce(client_done_ns, sent_ns + {timeout_ns}) > decided_ns"
    vain = f"{write} AND broker = {old_leader} AND local_done_ns > decided_ns"
    lost = f"{write} AND error_code = 0 AND kept = 0"
    named = f"api_key = {_METADATA} AND error_code = 0 AND leader = {old_leader}"
    commands = f"api_key = {_LEADER_AND_ISR} AND broker = {old_leader}"
    others = f"error_code NOT IN (0, {_NOT_LEADER}, {_TIMED_OUT})"
    due = f"{write} AND error_code = 0 AND intended_ns <= back_ns"
    return {
        "step_down_ms": f"{_ms_since('max', commands, 'local_done_ns')}",
        "accepted": f"double(sum(IF({vain} AND {_APPENDED}, records, 0)))",
        "lost": f"double(sum(IF({lost} AND acks = 1, records, 0)))",
        "lost_by_all": f"double(sum(IF({lost} AND acks = -1, records, 0)))",
        "timed_out": _count(f"{write} AND error_code = {_TIMED_OUT} AND {after}"),
        "failed_fast": _count(f"{write} AND error_code = {_NOT_LEADER}"),
        "failed_otherwise": _count(f"{write} AND {others} AND {after}"),
        "unwritable_ms": "first(coalesce(gap_ns / 1e6D, double('Infinity')))",
        "stale_ms": f"coalesce(greatest(0D, {_ms_since('max', named)}), 0D)",
        "recover_ms": f"coalesce({_ms_since('max', due)}, double('Infinity'))",
    }


def of_backlog(old_leader: int) -> str:
    """Return SQL for the old leader's number of pending writes at ``decided_ns``."""
    there = f"api_key = {_PRODUCE} AND broker = {old_leader} AND sent_ns <= decided_ns"
    return f"count_if({there} AND coalesce(local_done_ns > decided_ns, true))"


def of_mark(old_leader: int, timeout_ns: int) -> Mapping[str, str]:
    """Return SQL for an attempt's events and their times; null where there is none.

    An attempt's records were appended, it received NOT_LEADER, or it was given up. The
    old leader completed the controller's requests about leaders, and about metadata for
    clients.
    """
    write = f"api_key = {_PRODUCE}"
    given_up = f"coalesce(client_done_ns, sent_ns + {timeout_ns})"
    to_old = f"broker = {old_leader}"
    return {
        "at_old": to_old,
        "appended": _when(f"{write} AND {_APPENDED}", "local_done_ns"),
        "refused": _when(f"{write} AND error_code = {_NOT_LEADER}", "client_done_ns"),
        "given_up": _when(f"{write} AND error_code = {_TIMED_OUT}", given_up),
        "obeyed": _when(f"api_key = {_LEADER_AND_ISR} AND {to_old}", "local_done_ns"),
        "told": _when(f"api_key = {_UPDATE_METADATA} AND {to_old}", "local_done_ns"),
    }


def _when(condition: str, stamp: str) -> str:
    return f"IF({condition}, {stamp}, NULL)"


def _ms_since(function: str, where: str, stamp: str = "client_done_ns") -> str:
    """Return SQL for the milliseconds from the decision to an extreme instant."""
    return f"({function}(IF({where}, {stamp}, NULL)) - first(decided_ns)) / 1e6D"


def _count(where: str) -> str:
    return f"double(count_if({where}))"
