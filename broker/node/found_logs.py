"""Logs found on disk, reported to the coordinator and logged for the operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from logging import getLogger

from broker.config import BrokerConfig
from broker.coordination.adoption import PRODUCER_ID_GIVEN_BELOW
from broker.coordination.coordinator_roles import FoundLog
from broker.disk.checkpoints import MalformedCheckpoint
from broker.log.steps import run
from broker.log.upkeep.manager import LogManager
from broker.log.upkeep.recovery import Loss
from broker.observation.logs import fields
from broker.protocol.errors import ConfigError
from broker.protocol.topic_partition import TopicPartition

logger = getLogger(__name__)


def found_logs(logs: LogManager) -> dict[TopicPartition, FoundLog]:
    """Return the state of each partition's log. Cost: O(logs and producers)."""
    return {
        key: FoundLog(
            topic_id=logs.topic_id(key),
            is_empty=not log.log_end_offset,
            latest_epoch=log.epochs.latest,
            latest_producer_id=log.producers.latest_id(PRODUCER_ID_GIVEN_BELOW),
        )
        for key, log in logs.logs.items()
    }


def set_aside(logs: LogManager, strays: Mapping[TopicPartition, str]) -> None:
    """Rename logs that belong to no topic; ``strays`` contains the reasons."""
    for key, reason in strays.items():
        kept_as = logs.set_aside(key)
        logger.warning(
            "a log belongs to no topic and is set aside",
            extra=fields(log=str(key), reason=reason, kept_as=kept_as),
        )
    # After an error, for example a full disk, a later round repeats this.
    with suppress(OSError):
        run(logs.checkpointing_deletions())


def log_loss(loss: Loss) -> None:
    """Log the bytes that recovery cut off."""
    logger.warning(
        "recovery cut off the end of a segment",
        extra=fields(file=loss.path, bytes=loss.size, reason=loss.reason),
    )


@contextmanager
def operators_fault(config: BrokerConfig) -> Iterator[None]:
    """Turn errors of unusable directories into a `ConfigError` of their key."""
    try:
        yield
    except OSError as error:
        found = ",".join(config.log_dirs)
        expected = f"directories to read, to write and with room: {error}"
        raise ConfigError("log.dirs", found, expected) from error
    except MalformedCheckpoint as damage:
        # The content of a checkpoint cannot be guessed; nothing was changed.
        raise ConfigError(
            "log.dirs", str(damage), "files as a broker leaves them"
        ) from damage
