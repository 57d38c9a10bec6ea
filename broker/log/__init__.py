"""Kafka's log on disk, decided synchronously; clocks and storage are handed in.

segments/   files of batches: index.py, segment.py, repair.py, segment_list.py
log.py      one partition's log: its state, append, roll, and whether it is closed
operation.py  what all operations on a log have in common; they are
            reading.py, times.py, flushing.py, trimming.py, and those of upkeep/
rewriting.py  batches that a topic's settings change
epochs.py, producers.py, durability.py  leader epochs, sequence numbers, what is on disk
upkeep/     what is done to logs now and then: recovery.py, cleaner.py and swap.py,
            mending.py, and manager.py, the logs of a broker

Each file imports those above it, and none below.
"""
