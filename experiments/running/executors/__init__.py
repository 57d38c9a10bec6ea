"""Where trials are executed: here one by one, in processes, or on a Spark cluster.

``experiments.running.executor`` is the contract: an executor takes trials as long as
there are any and gives back what became of them, in any order. Rows do not depend on
who executed a trial.
"""
