"""Finished tasks are freed without the cyclic garbage collector."""

import gc
import weakref
from functools import partial

from tests.planes.simulation import simulated


class Payload:
    """Placeholder for the bytes of a request."""


@simulated("fifo")
async def test_a_task_is_freed_though_its_handler_refers_to_it(world):

    async def serve(task, payload):
        await world.slices(2)
        return task.number

    payload = Payload()
    freed = weakref.ref(payload)
    task = world.task(None)
    task.serve = partial(serve, task, payload)
    gc.disable()
    try:
        assert world.dispatcher.offer(world.planes[0], task)
        del task, payload
        await world.settle()
        assert freed() is None
    finally:
        gc.enable()
