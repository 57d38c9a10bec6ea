"""Queue orders inside Apache Kafka, compared with the same policies in Python."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator

import pytest

from experiments.worlds.kafka import apache_kafka
from experiments.worlds.kafka.request_queue import AGENT
from schedulers import Job, Scheduler, SchedulerConfig, registry

CLASSES = {"control": 0, "replication": 1, "produce": 4, "fetch": 4}
WEIGHTS = {"control": 16.0, "replication": 4.0, "fetch": 0.3}
AGEING_NS = 500
STEPS = 4_000
# Java order, and the Python policy that must make the same picks.
PEERS = {"fifo": "fifo", "priority": "np-priority", "wfq": "wfq"}


def played(policy: Scheduler, seed: int) -> Iterator[tuple[str, int | None]]:
    """Run a random script; yield each line with the number of the picked job."""
    rng = random.Random(seed)
    seats = rng.randint(1, 8)
    flows = rng.choice((1, 3, 200))
    in_service: list[Job] = []
    now_ns = number = 0
    for _ in range(STEPS):
        now_ns += rng.choice((0, 1, 100, 10_000))
        action = rng.random()
        if action < 0.4:
            name = rng.choice(list(CLASSES))
            cost_ns = rng.choice((0, 1, rng.randrange(1_000_000), 10**10))
            flow = f"{name}/{rng.randrange(flows)}"
            level = CLASSES[name]
            policy.arrive(
                Job(
                    number=number,
                    request_class=name,
                    level=level,
                    flow=flow,
                    cost_ns=cost_ns,
                    arrived_ns=now_ns,
                ),
                now_ns,
            )
            weight = WEIGHTS.get(name, 1.0)
            words = number, name, level, flow, weight, cost_ns, now_ns
            yield " ".join(("arrive", *map(str, words))), None
            number += 1
        elif action < 0.7 and len(in_service) < seats:
            job = policy.pick(now_ns)
            yield f"pick {now_ns}", -1 if job is None else job.number
            if job is not None:
                in_service.append(job)
        elif in_service:
            job = in_service.pop(rng.randrange(len(in_service)))
            job.attained_ns = rng.choice((0, job.cost_ns, rng.randrange(2_000_000)))
            policy.leave(job, now_ns, done=True)
            yield f"leave {job.number} {job.attained_ns} {now_ns}", None


@pytest.mark.kafka
@pytest.mark.parametrize("order", PEERS)
@pytest.mark.parametrize("seed", range(5))
def test_an_order_picks_as_the_policy_in_python(order: str, seed: int) -> None:
    """Random arrivals, picks and true costs; idle flows, ties and extreme costs."""
    if not AGENT.exists():
        pytest.skip("the agent is not built: `make kafka-tools`")
    config = SchedulerConfig(weights=WEIGHTS, ageing_ns=AGEING_NS)
    script = list(played(registry.make(PEERS[order], config), seed))
    classes = f"{AGENT}:{apache_kafka.jars(apache_kafka.VERSIONS[0])}/*"
    done = subprocess.run(
        [
            apache_kafka.java(),
            "-cp",
            classes,
            "doorkeeper.Replay",
            order,
            str(AGEING_NS),
        ],
        input="\n".join(line for line, _ in script),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    expected = [pick for _, pick in script if pick is not None]
    assert len(expected) > STEPS / 10
    assert [int(line) for line in done.stdout.split()] == expected
