"""Groups of the classic and the consumer protocol: a pure core and its coordinator.

``state`` holds a group as values, its state machine as a table, and Kafka's format of
its records; ``joining``, ``rebalance``, ``membership`` and ``commits`` act on a group
and return `Effects`; ``coordinator`` owns the groups and joins them to the log, which
is handed in. Nothing here waits, reads a clock, draws without being handed a source of
chance, or opens a file.
"""
