"""Files: the broker's interface to a disk, for the operating system and in memory."""
