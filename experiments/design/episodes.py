"""Episodes: a run cut into rounds of short loads, dealt to all arms in turn.

For questions about bursts. A machine that others use changes its speed within seconds,
so compared requests have to lie seconds apart: all arms' brokers stay alive, and each
round deals the same episode, the whole of ``[workload]``, to every arm in random order.
An episode begins and ends with an idle broker; its first ``warmup_s`` are not analysed,
for they meet caches that other arms have used. The block of the experiment is a round
then, and ``blocks`` the most rounds that are played.

Rounds are played in sessions. A session starts all brokers anew, so that the luck of
one process (where its memory lies) does not become a finding, and after it the
*sequential rule* looks at what is there: enough is enough when the interval of the
primary quantile's ratio to the baseline is as narrow as asked for every arm. It looks
at how wide intervals are, never at where they lie.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from experiments.design.values import Band, Count, Mean, Name, Section


class Episodes(Section):
    """How rounds are played, which of them count, and when there are enough.

    ``speed_band`` is by what factor the machine's speed (``running.speed``) may differ
    between the arms of a round that counts: in each episode it is what it is in quiet,
    to within the square root of the band. On a machine that its neighbours slowed by up
    to 1.7 for tens of milliseconds, most of the spread of what identical requests cost
    was that (correlation 0.82 to 0.87 with the loop's mean). In the episodes within 1.2
    of each other those costs lay, but for one in a hundred, within 1.15 of their
    median; in all together within 1.6. And for no few milliseconds of what counts in
    an episode may it be slower than in quiet by more than ``slowest_band``, if stated:
    a mean does not tell of half as fast for ten of them, and the p99 of a wait that is
    bounded comes from the one burst that they meet.

    ``primary`` is the class (None: that of the first traffic entry) whose ``quantile``
    decides: rounds are added until, for every arm, the interval of its ratio to the
    baseline reaches no further than a factor 1 + ``precision`` to either side; but
    ``rounds_min`` at least, and no longer than ``minutes`` on the clock where the world
    has one. Where runs are computed the clock decides nothing, so that the same file
    gives the same rows anywhere.
    """

    session_rounds: Count = 40
    speed_band: Band = 1.2
    slowest_band: Band | None = None
    primary: Name | None = None
    quantile: Annotated[float, Field(gt=0, lt=1)] = 0.99
    precision: Mean = 0.1
    rounds_min: Count = 40
    minutes: Mean = 3.0

    def session_of(self, block: int) -> int:
        """Return the session that a round is played in."""
        return block // self.session_rounds
