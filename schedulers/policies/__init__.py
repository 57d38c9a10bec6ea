"""The policies: one file each, every one of them a queue discipline."""
