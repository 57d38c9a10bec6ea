"""Kafka's log on disk: segments, indexes, checkpoints, recovery; synchronous and pure.

storage.py      what a disk is          files.py, memory.py   a real one, a faulty one
batch.py        headers of batches      records.py, codecs.py what is inside them
index.py        sparse indexes          segment.py, segments.py  files of batches
epochs.py       leader epochs           producers.py          sequence numbers
log.py          one partition's log: append and roll; and its other operations:
                reading.py, times.py, flushing.py, trimming.py, cleaner.py, swap.py
rewriting.py    batches that a topic's settings change
durability.py   what has reached the disk
recovery.py     opening what is there   repair.py             a segment of it
manager.py      the logs of a broker    checkpoints.py, identity.py  its small files
"""
