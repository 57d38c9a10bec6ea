"""The front door: the command line, and what a program may import.

`doorkeeper.client` is the Trio client, `doorkeeper.broker` a broker from its settings.
Scheduling policies are written against ``schedulers``, recordings are read as Parquet.
Everything else may change its place without notice.
"""
