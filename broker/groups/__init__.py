"""Consumer groups, the classic protocol: a pure core and its coordinator.

``transitions`` is the state machine as data; ``roster`` and ``group`` hold a group;
``rebalance``, ``membership`` and ``offsets`` act on it and return `Effects`;
``records`` is Kafka's format of ``__consumer_offsets``; ``coordinator`` owns the groups
and joins them to the log. Nothing here waits, reads a clock or opens a file.
"""
