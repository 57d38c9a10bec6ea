"""Executors of work: in this process, in several processes, or on a Spark cluster.

``experiments.running.executor`` is the contract. Rows do not depend on the executor.
"""
