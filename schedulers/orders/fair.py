"""Base of policies that serve flows by virtual tags, job by job."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from schedulers.contract.config import SchedulerConfig
from schedulers.contract.foresight import Foresight
from schedulers.contract.job import Job
from schedulers.contract.scheduler import Scheduler
from schedulers.orders.flows import Flow, Flows


class FairQueue(Scheduler, Foresight):
    """Keep jobs in their flows, and charge each turn's true cost to its flow.

    A policy defines virtual time in ``_virtual`` and the next flow in ``pick``; no job
    in service is preempted.
    """

    shares_by_weight: ClassVar[bool] = True
    leave_suffices: ClassVar[bool] = True

    def __init__(self, config: SchedulerConfig) -> None:
        self._flows = Flows(config)
        self._virtual = 0

    def arrive(self, job: Job, now_ns: int) -> None:
        """Append the job to its flow, which starts now if it was idle."""
        flows = self._flows
        if not flows.waiting and not flows.in_service:
            # After an idle plane no flow has a claim to earlier service.
            self._virtual = max(self._virtual, flows.restart())
        flow = flows.add(job, self._virtual, front=False)
        if len(flow.jobs) == 1:
            self._head_changed(flow)

    def debit(self, job: Job, used_ns: int, now_ns: int) -> None:
        """Charge the job's flow, which may be idle."""
        flow = self._flows.debit(job, used_ns, self._virtual)
        if flow.jobs:
            self._head_changed(flow)

    def leave(self, job: Job, now_ns: int, *, done: bool) -> None:
        """Correct the flow's charge to the CPU that the turn used."""
        flow = self._flows.leave(job)
        if flow.jobs:
            self._head_changed(flow)
        self._flows.sweep(self._virtual)

    def resume(self, job: Job, now_ns: int) -> None:
        """Put the job at the head of its flow."""
        self._head_changed(self._flows.add(job, self._virtual, front=True))

    def waiting(self) -> Collection[Job]:
        """Return the waiting jobs by flow."""
        return [job for flow in self._flows for job in flow.jobs]

    def __len__(self) -> int:
        return self._flows.waiting

    def check(self) -> None:
        """Assert that the flows' counts agree."""
        self._flows.check()

    def _head_changed(self, flow: Flow) -> None:
        """Handle a change of a flow's head job or virtual start; a hook."""
        return
