"""Policies that each break one law, for the counters of laws to catch."""

from schedulers import Fifo, Priority


class Backwards(Fifo):
    """Serves the latest arrival first, and denies it."""

    def pick(self, now_ns):
        return self._new.pop() if self._new else super().pick(now_ns)


class Lazy(Fifo):
    """Gives a free seat nothing, every other time."""

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
    """Priority without relief for those passed over."""

    def __init__(self, config):
        super().__init__(config)
        self._ageing_ns = None


class Partial(Pitiless):
    """Says that it shares by weight, and gives all to the most urgent."""

    shares_by_weight = True
