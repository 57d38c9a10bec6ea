"""This broker's view of the cluster: topics, replicas, metadata.

`partition` and `replica_manager` are the real state that controllers change and that
Produce and Fetch act on; `metadata_cache` is the view of clients. Decisions are made in
``broker.coordination``, and ``broker.node`` holds it all together.
"""
