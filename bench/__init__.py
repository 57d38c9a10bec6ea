"""Speed relative to a named peer: `make bench`.

Every figure is a ratio between this project and a peer under the same load. The two are
measured alternately, in one run on one machine; the figure is the median over the
rounds. Absolute numbers depend on a shared machine, and no test asserts one.
"""
