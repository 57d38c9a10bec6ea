"""Operations in purgatories for partitions: Produce, Fetch, DeleteRecords."""
