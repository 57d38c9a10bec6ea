"""Work on whole logs: opening, recovery, compaction, mending, closing."""
