"""Numbers that stand for no leader and no epoch, in Kafka's ``LeaderAndIsr``."""

from typing import Final

NO_LEADER: Final = -1
NO_EPOCH: Final = -1
# The topic is being deleted, regardless of its leader and epoch.
LEADER_DURING_DELETE: Final = -2
EPOCH_DURING_DELETE: Final = -2
