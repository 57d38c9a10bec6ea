"""What several policies keep jobs in: heaps, buckets, flows with tags."""
