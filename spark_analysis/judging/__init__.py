"""From rows to verdicts: Spark's computations per group, and their assembly.

``measurement`` collects Spark's numbers by session, ``cells`` decides each cell, and
``assembly`` puts the study together. Imports ``recordings`` and ``statistics``.
"""
