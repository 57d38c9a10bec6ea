"""Sessions: the unit of replication of an experiment that replays short loads.

A session starts one process per arm, all together; the baseline has two. The processes
then replay the same traces, one per *round*, in a random order of arms per round.

Some properties last for a process's life: memory layout, hash seed, the processor of
each connection. They are a random effect of session and arm, shared by all rounds of
the session. Rounds are therefore no replications; sessions are (Kalibera and Jones
2013, "Rigorous benchmarking in reasonable time", section 6). The number of sessions is
fixed before the experiment runs. No measurement ends it early.

A round replays the whole of ``[workload]``. It begins and ends with an idle broker. Its
first ``warmup_s`` are not analysed, because the caches hold the data of another arm. An
experiment without ``[sessions]`` starts fresh processes for each run; there a block is
a session of one round. In a sweep every point has its own sessions.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from experiments.design.values import Count, Name, Section


class Sessions(Section):
    """Number of sessions, rounds per session, and the configured metric.

    The configured metric is the ``quantile`` of the class ``primary``. It is reported
    even if it is undecided; all others are secondary.
    """

    count: Count
    rounds: Count
    primary: Name
    quantile: Annotated[float, Field(gt=0, lt=1)] = 0.99
