"""One file per API: its versions, what it does, what it leaves out, and its handler.

A handler is ``async def handle(request, body, broker)`` and returns the response, which
`kafka_apis` encodes; Produce and Fetch encode their own. A handler can be preempted
between units of work. It waits only in purgatory, for a lock, for a device and for the
coordinator.
"""
