"""The laboratory: the same requests, one by one, through rival schedulers.

``design`` is an experiment as data, ``load`` draws its requests from a seed and sends
them, ``worlds`` replay them to a broker or to a model of one, ``running`` decides in
which order that happens, and ``records`` is what is kept. ``cluster`` and
``simulation`` do the same to several brokers at once, ``theory`` says what should come
out, ``bench`` compares speed, and ``processes`` starts what runs beside us. The
analysis (``spark_analysis``) reads what was recorded and imports nothing from here.
"""
