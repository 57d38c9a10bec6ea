"""The laboratory: the same requests, one by one, under several schedulers.

``design`` is an experiment as data; ``load`` draws its requests from a seed and sends
them; ``worlds`` replay them to a broker or to a model of one; ``running`` orders the
runs; ``records`` defines the recorded data. ``cluster`` replays a load to several
brokers, ``theory`` predicts results, and ``processes`` starts child processes. The
analysis (``spark_analysis``) reads the recordings and imports nothing from here.
"""
