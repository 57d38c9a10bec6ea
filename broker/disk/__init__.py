"""Files: what the broker asks of a disk, the operating system's, and one in memory."""
