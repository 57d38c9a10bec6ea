"""The producer: from records through batches to requests."""
