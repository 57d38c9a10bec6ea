"""One file per API: its versions, what it does, what it leaves out, and its handler.

A handler is ``async def handle(request, body, broker)`` and returns the answer, which
`kafka_apis` encodes; Produce and Fetch encode their own. Between units of work a
handler offers to be preempted. It waits in purgatory, at a lock, for a device and for
the coordinator, and nowhere else.
"""
