"""The public interface: the command line, and the modules that a program may import.

`doorkeeper.client` is the Trio client, `doorkeeper.broker` a broker from its settings,
`doorkeeper.testing` a broker for tests. Scheduling policies implement ``schedulers``,
recordings are Parquet files. All other modules may move without notice.
"""
