"""Segments of a log: files of batches, each with its two sparse indexes."""
