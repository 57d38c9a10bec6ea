"""From recorded runs to verdicts: Spark groups, NumPy decides, a report explains.

Four wings, which data flows through in this order:

- ``recordings`` reads and checks what was recorded, and starts Spark to do so;
- ``statistics`` are plain NumPy functions that need no JVM;
- ``judging`` makes one study of a run directory: values, contrasts, verdicts;
- ``telling`` turns a study into sentences, tables, figures, a page and a paper.

``judging`` imports the two before it, which do not know each other; ``telling`` imports
all three. ``analyze`` runs them from end to end. Nothing here imports the broker or the
experiments: recorded files are the contract.
"""
