"""Analysis: recordings to verdicts to a report.

Data flows through four packages in this order:

- ``recordings`` reads and checks recordings, and starts Spark to do so;
- ``judging`` makes one study of a run directory: values, contrasts, verdicts;
- ``incidents`` does so with an election under load, where one was recorded;
- ``report`` renders both as ``results.json``, tables, figures, a page and a paper.

Each may import those before it, and all of them ``statistics``: plain NumPy functions
that need no JVM. ``analyze`` runs them from end to end. Nothing here imports the broker
or the experiments: recorded files are the contract.
"""
