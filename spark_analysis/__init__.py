"""Analysis: from recordings to verdicts to a report.

Data flows through four packages in this order:

- ``recordings`` reads and checks recordings, and starts Spark to do so;
- ``judging`` makes one study of a run directory: values, contrasts, verdicts;
- ``incidents`` judges an election under load, if one was recorded;
- ``report`` renders both as ``results.json``, tables, figures, a page and a paper.

Each may import those before it, and all of them ``statistics``: plain NumPy functions
without a JVM. ``analyze`` runs them from end to end. The analysis imports neither the
broker nor the experiments: recorded files are the contract.
"""
