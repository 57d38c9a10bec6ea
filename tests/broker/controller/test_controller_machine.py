"""A controller keeps its invariants, and the checks find controllers that break them.

The second half plants faults. Each fault replaces a function of the core by a wrong
version, and the machine has to fail: otherwise nothing checks the broken invariant.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from broker.controller import decisions, partition_states, writing
from broker.controller.batches import RequestBatch
from broker.controller.broker_changes import Brokers
from broker.controller.context import ControllerContext
from broker.controller.deletion import TopicDeletions
from broker.controller.isr_proposals import IsrJudge
from broker.controller.leadership import Leadership
from broker.controller.partition_reassignment import Reassignments
from broker.controller.replica_states import ReplicaStateMachine
from broker.controller.selectors import unclean_leader
from tests.broker.controller.machine import ControllerMachine


def test_invariants_hold_after_any_sequence_of_events():
    run_state_machine_as_test(
        ControllerMachine,
        settings=settings(max_examples=60, stateful_step_count=40),
    )


def test_invariants_hold_when_others_run_after_every_partition(monkeypatch):
    """The controller may also crash in each of its pauses."""
    monkeypatch.setattr(decisions, "PAUSE_ITEMS", 1)
    run_state_machine_as_test(
        ControllerMachine,
        settings=settings(max_examples=20, stateful_step_count=40),
    )


def nothing(*args, **kwargs):
    """Do nothing, as a generator."""
    yield from ()


def elect_anybody(assignment, isr, live):
    return unclean_leader(assignment, live)


def next_in_the_same_epoch(self, controller_epoch, **changes):
    return replace(
        NEXT(self, controller_epoch, **changes), leader_epoch=self.leader_epoch
    )


def believe_every_write(context, wanted):
    yield from WRITE(context, wanted)
    return dict(wanted)


def flush_stops_first(self):
    for send in FLUSH(self):
        yield replace(send, requests=send.requests[::-1])


def lead_without_telling(self, brokers, key, leadership, assignment, *, is_new=False):
    self.send_metadata(self._context.brokers, [key])


def stay_in_isr(self, broker):
    return lambda key, before: None


def grant_everything(self, broker_id, key, proposal):
    return self._context.leadership(key) or JUDGE(self, broker_id, key, proposal)


def never_bounced(self, brokers):
    known = self._context.brokers
    return REGISTERED(
        self, {it: known.get(it, registered) for it, registered in brokers.items()}
    )


def always_caught_up(self, key, assignment):
    return self._context.leadership(key) is not None


def forget_disks(self, broker, key):
    return self.is_live(broker)


NEXT = Leadership.next
WRITE = writing.write_leaderships
FLUSH = RequestBatch.flush
JUDGE = IsrJudge._judge
REGISTERED = Brokers.registered

FAULTS = {
    "a leader that missed records": (partition_states, "offline_leader", elect_anybody),
    "two leaders in one epoch": (Leadership, "next", next_in_the_same_epoch),
    "a lost write is believed": (writing, "write_leaderships", believe_every_write),
    "requests in another order": (RequestBatch, "flush", flush_stops_first),
    "a leader is not told": (RequestBatch, "lead_or_follow", lead_without_telling),
    "the dead stay in the ISR": (ReplicaStateMachine, "_leave_isr", stay_in_isr),
    "every proposal is granted": (IsrJudge, "_judge", grant_everything),
    "a restart is not noticed": (Brokers, "registered", never_bounced),
    "a target is not waited for": (Reassignments, "_is_caught_up", always_caught_up),
    "new brokers know nothing": (
        ControllerContext,
        "led_partitions",
        lambda *args: (yield from ()) or [],
    ),
    "deletions are not resumed": (TopicDeletions, "retry", nothing),
    "reassignments are not resumed": (Reassignments, "resume", nothing),
    "replicas are not deleted": (ReplicaStateMachine, "_delete", nothing),
    "the removed are not stopped": (Reassignments, "_delete_replicas", nothing),
    "leaders stay with the removed": (Reassignments, "_move_leader", nothing),
    "offline disks lead": (ControllerContext, "is_online", forget_disks),
    "no leader after a failure": (
        partition_states.PartitionStateMachine,
        "bring_online",
        lambda *args: (yield from ()) or {},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(monkeypatch, fault):
    place, name, wrong = FAULTS[fault]
    assert hasattr(place, name)
    monkeypatch.setattr(place, name, wrong)
    with pytest.raises((AssertionError, KeyError)):
        run_state_machine_as_test(
            ControllerMachine,
            settings=settings(
                # The rarest fault is found once in 240 examples.
                max_examples=2_000,
                stateful_step_count=40,
                database=None,
                phases=[Phase.generate],
            ),
        )
