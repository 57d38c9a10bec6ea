"""What this broker knows and holds of the cluster: topics, replicas, metadata.

`partition` and `replica_manager` are the real state that controllers change and that
Produce and Fetch act on; `metadata_cache` is what clients are told; `coordinator` is
the protocol of who decides, and `embedded` the one that decides alone, in this
process, remembering in `registry`. `broker_state` holds it all together.
"""
