"""What waits in a purgatory for a partition: Produce, Fetch, DeleteRecords."""
