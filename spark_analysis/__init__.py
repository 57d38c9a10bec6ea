"""From recorded runs to verdicts: PySpark groups, NumPy decides, a report explains.

``contract`` reads the manifest, ``load`` the recorded requests; ``statistics`` holds
plain NumPy functions that need no JVM; ``compare`` lets Spark call them once per group;
``verdict`` turns numbers into words; ``tables``, ``figures``, ``report`` and ``paper``
show them. Nothing here imports the broker or the experiments: files are the contract.
"""
