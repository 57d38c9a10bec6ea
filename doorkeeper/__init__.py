"""The public interface: the command line, and the modules that a program may import.

`doorkeeper.client` is the Trio client, `doorkeeper.broker` a broker from its settings,
`doorkeeper.testing` a broker for tests. Scheduling policies are written against
``schedulers``, recordings are read as Parquet. Everything else may change its place
without notice.
"""
