"""What this broker knows and holds of the cluster: topics, replicas, metadata.

`partition` and `replica_manager` are the real state that controllers change and that
Produce and Fetch act on; `metadata_cache` is what clients are told. Who decides is the
affair of ``broker.coordination``, and ``broker.node`` holds it all together.
"""
