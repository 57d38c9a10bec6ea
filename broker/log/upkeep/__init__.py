"""What is done to whole logs: opened, recovered, compacted, mended, closed."""
