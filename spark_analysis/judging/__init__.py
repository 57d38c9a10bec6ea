"""From rows to verdicts: what Spark computes per group, and what it means.

``spark_jobs`` groups, ``group_functions`` run inside the groups, ``assembly`` puts the
study together; the others are its parts. Imports ``recordings`` and ``statistics``.
"""
