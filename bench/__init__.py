"""Speed beside a named peer: `make bench`.

Every figure is a ratio between us and a peer under the same load, taken in turn (ours,
theirs, ours, theirs, ...) in one run on one machine, and quoted as the median over the
rounds. An absolute number of a shared machine says little, and no test asserts one.
"""
