"""Files: the broker's interface to a disk, in the operating system and in memory."""
