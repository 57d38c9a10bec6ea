"""Kafka's log on disk, decided synchronously; clocks and storage are handed in.

steps.py      long work as generators, which the driver may interrupt
segments/     files of batches: index.py, segment.py, repair.py, segment_list.py
epochs.py, producers.py, durability.py  leader epochs, sequence numbers, durable data
rewriting.py  validation and conversion of produced batches
log.py        one partition's log: its state, append, roll, and close
operation.py  the guard around operations on a log
log_reading.py, times.py, flushing.py, trimming.py  operations on a log
upkeep/       periodic work on logs: recovery.py, cleaner.py and swap.py,
              mending.py, and manager.py, the logs of a broker

Each module imports only modules listed above it.
"""
