"""Kafka's log on disk: segments, indexes, checkpoints, recovery; synchronous and pure.

storage.py    what a disk is        files.py, memory.py   the real one, a faulty one
batch.py      headers of batches    records.py, codecs.py what is inside them
index.py      sparse indexes        segment.py            a file of batches
epochs.py     leader epochs         producers.py          sequence numbers
log.py        one partition's log   recovery.py           opening what is on disk
cleaner.py    compaction            manager.py            the logs of a directory
"""
