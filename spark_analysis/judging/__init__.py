"""From rows to verdicts: Spark's computations per group, and their assembly.

``spark_jobs`` groups, ``group_functions`` run inside the groups, ``assembly`` puts the
study together; the others are its parts. Imports ``recordings`` and ``statistics``.
"""
