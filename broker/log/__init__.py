"""Kafka's log on disk, decided synchronously; clocks and storage are handed in.

steps.py      long work as generators, which the driver may interrupt
segments/     files of batches: index.py, segment.py, repair.py, segment_list.py
epochs.py, producers.py, durability.py  leader epochs, sequence numbers, durable data
rewriting.py  batches that a topic's settings change
log.py        one partition's log: its state, append, roll, and whether it is closed
operation.py  the common part of operations on a log
reading.py, times.py, flushing.py, trimming.py  those operations
upkeep/       periodic work on logs: recovery.py, cleaner.py and swap.py,
              mending.py, and manager.py, the logs of a broker

Each imports only what stands above it.
"""
