"""Policies that each break one law, for tests of the violation counters."""

from schedulers import Fifo, Priority


class Backwards(Fifo):
    """Serves the latest arrival first, but claims FIFO order."""

    def pick(self, now_ns):
        return self._new.pop() if self._new else super().pick(now_ns)


class Lazy(Fifo):
    """Leaves a free seat idle at every other pick."""

    asked = 0

    def pick(self, now_ns):
        self.asked += 1
        return super().pick(now_ns) if self.asked % 2 else None


class Forgetful(Fifo):
    """Loses every fiftieth arrival."""

    arrivals = 0

    def arrive(self, job, now_ns):
        self.arrivals += 1
        if self.arrivals % 50:
            super().arrive(job, now_ns)


class Pitiless(Priority):
    """Priority without ageing."""

    def __init__(self, config):
        super().__init__(config)
        self._ageing_ns = None


class Partial(Pitiless):
    """Claims to share by weight, but serves by strict priority."""

    shares_by_weight = True
