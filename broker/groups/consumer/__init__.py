"""Consumer groups of KIP-848: assignments are computed here, not by a member.

Three epochs count the progress. The group's epoch goes up with every change of its
members, subscriptions or topics. A target assignment belongs to one group epoch. A
member's epoch is that of the target it has come to: it first gives up what the target
takes away, and is given a partition once no other member holds it.

``assignors`` computes a target, ``reconciliation`` a member's next step; both are pure.
``members`` and ``consumer_group`` hold the state, ``consumer_records`` has Kafka's
format of it. The verbs are one folder up: ``consumer_heartbeats``, ``classic_members``
for members that speak the classic protocol, and ``migration`` for groups that turn from
one kind into the other.
"""
