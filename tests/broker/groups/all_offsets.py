"""All committed offsets of a group, as OffsetFetch collects them page by page."""

from __future__ import annotations

from broker.groups.committed_offsets import Commits, FetchedOffset
from broker.protocol.topic_partition import TopicPartition


def fetch_all(
    offsets: Commits, group_id: str, *, require_stable: bool
) -> dict[TopicPartition, FetchedOffset]:
    """Return all committed offsets of a group."""
    fetched: dict[TopicPartition, FetchedOffset] = {}
    for page in offsets.pages(group_id):
        fetched |= offsets.fetch(group_id, page, require_stable=require_stable)
    return fetched
