"""Consumer groups of KIP-848: assignments are computed here, not by a member.

Three epochs count the progress. The group's epoch increases with every change of its
members, subscriptions or topics. A target assignment belongs to one group epoch. A
member's epoch is that of its latest target: the member first revokes the partitions
that the target lacks, and receives a partition once no other member holds it.

``assignors`` computes a target, ``reconciliation`` a member's next step; both are pure.
``members`` and ``consumer_group`` hold the state, and ``consumer_records`` has Kafka's
format of it. The requests are served one package up: ``consumer_heartbeats``,
``classic_members`` for members of the classic protocol, and ``migration`` for groups
that change their protocol.
"""
