"""Queue structures of several policies: heaps, buckets, flows with tags."""
