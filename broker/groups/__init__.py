"""Groups of the classic and the consumer protocol: a pure core and its coordinator.

``state`` holds a group as values, its state machine as a table, and Kafka's format of
its records. ``joining``, ``rebalance``, ``membership`` and ``committed_offsets`` act on
a group and return `Effects`. ``group_coordinator`` owns the groups and connects them to
the log. The log, clocks and sources of random numbers are arguments; no function waits
or opens a file.
"""
