"""This broker's view of the cluster: topics, replicas, metadata.

`partition` and `replica_manager` hold the state that controllers change and that
Produce and Fetch use; `metadata_cache` holds the metadata for clients. Decisions are
made in ``broker.coordination``; ``broker.node`` connects all parts.
"""
