"""The laboratory: the same requests, one by one, through rival schedulers.

``config`` and ``workload`` are an experiment as data, ``trace`` the requests that it
draws from its seed, ``worlds`` the places where a trace is replayed, ``runner`` the
order in which that happens, ``executors`` who does it, ``recording`` what is kept of
it, ``cli`` the command line. The analysis (``spark_analysis``) reads what was recorded
and imports nothing from here.
"""
