"""One trial after the other, in this process: for worlds that measure the machine."""

from __future__ import annotations

from collections.abc import Generator

from experiments.running.executor import Todo
from experiments.running.trials import Outcome, Replayer
from experiments.worlds.world import World


class Sequential:
    """Runs trials in the world that it is given, in the order of the plan."""

    name = "sequential"
    lanes: int | None = 1

    def __init__(self, world: World) -> None:
        self._replayer = Replayer(world)

    def outcomes(self, todo: Todo) -> Generator[Outcome, None, None]:
        """Run trials, see `Executor`; an exception of the world's is not caught."""
        while (work := todo.next()) is not None:
            yield self._replayer.run(work)
