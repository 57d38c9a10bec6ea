"""Policies that break the contract, one per class, as the source of a user's module."""

SOURCE = '''
from schedulers import Fifo, Scheduler

class NeverPicks(Fifo):
    def pick(self, now_ns):
        return None

class WaitsForNoEvent(NeverPicks):
    work_conserving = False

class WaitsForThePast(NeverPicks):
    work_conserving = False
    def next_event_ns(self, now_ns):
        return now_ns

class WaitsForEver(NeverPicks):
    work_conserving = False
    def next_event_ns(self, now_ns):
        return now_ns + 1

class LosesHalf(Fifo):
    arrivals = 0
    def arrive(self, job, now_ns):
        self.arrivals += 1
        if self.arrivals % 2:
            super().arrive(job, now_ns)

class LosesInSecret(LosesHalf):
    count = 0
    def arrive(self, job, now_ns):
        self.count += 1
        super().arrive(job, now_ns)
    def pick(self, now_ns):
        job = super().pick(now_ns)
        self.count -= job is not None
        return job
    def __len__(self):
        return self.count

class PicksTwice(Fifo):
    last = None
    def pick(self, now_ns):
        last, self.last = self.last, None
        if last is None:
            self.last = last = super().pick(now_ns)
        return last

class PicksOneServedBefore(Fifo):
    def __init__(self, config):
        super().__init__(config)
        self.served = []
    def pick(self, now_ns):
        if len(self.served) == 3:
            return self.served[0]
        job = super().pick(now_ns)
        self.served += [job] if job else []
        return job

class PicksANumber(Fifo):
    def pick(self, now_ns):
        return 7 if super().pick(now_ns) else None

class RaisesInPick(Fifo):
    def pick(self, now_ns):
        raise LookupError("no such job")

class RaisesInArrive(Fifo):
    def arrive(self, job, now_ns):
        raise LookupError("no such job")

class RaisesInLeave(Fifo):
    def leave(self, job, now_ns, *, done):
        raise LookupError("no such job")

class OutranksNothing(Fifo):
    preempts = "in service"
    def outranks(self, running, now_ns):
        return True

class RaisesWhenMade(Fifo):
    def __init__(self, config):
        raise LookupError("no such job")

class TakesNoConfig(Fifo):
    def __init__(self):
        super().__init__(None)

class LacksPick(Scheduler):
    def arrive(self, job, now_ns):
        pass
    def waiting(self):
        return ()

class IsNoScheduler:
    def __init__(self, config):
        pass

class Works(Fifo):
    """A policy that breaks nothing."""
'''
# The law that each class breaks in service.
IN_USE = {
    "NeverPicks": "work conservation",
    "WaitsForNoEvent": "next event",
    "WaitsForThePast": "next event",
    "WaitsForEver": "next event",
    "LosesHalf": "no job lost",
    "LosesInSecret": "work conservation",
    "PicksTwice": "no job invented",
    "PicksOneServedBefore": "no job invented",
    "PicksANumber": "no job invented",
    "RaisesInPick": "no exception",
    "RaisesInArrive": "no exception",
    "RaisesInLeave": "no exception",
    "OutranksNothing": "outranks is true",
}
# The message for each class that cannot be instantiated.
WHEN_MADE = {
    "RaisesWhenMade": "cannot be made: LookupError: no such job",
    "TakesNoConfig": "cannot be made: TypeError",
    "LacksPick": "lacks pick",
    "IsNoScheduler": "makes IsNoScheduler, no Scheduler",
}


def line_of(name):
    """Return the line on which a class of the module begins."""
    return (
        SOURCE.splitlines().index(
            next(it for it in SOURCE.splitlines() if it.startswith(f"class {name}"))
        )
        + 1
    )
