"""``python -m tests.live.bad_end HOW ARGUMENTS``: a command that does not end well.

The broker of ``doorkeeper ARGUMENTS`` never finishes one of its steps: leaving its
cluster (HOW is ``leave``: no controller answers), closing its logs (``close``: a device
blocks the thread), or preparing (``prepare``: no ZooKeeper). With ``expire`` it loses
its log directories.
"""

from __future__ import annotations

import sys
import time

import trio

from broker.handling.kafka_apis import KafkaApis
from broker.node.broker import Broker
from broker.protocol.errors import LogDirsLost
from doorkeeper.cli import main


async def forever(_: KafkaApis) -> None:
    print("hangs", flush=True)
    # Not cancellable, like a thread that waits for a name server.
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()


def blocked(_: KafkaApis) -> None:
    print("hangs", flush=True)
    time.sleep(3600)


def lost(_: Broker, now_ns: int) -> None:
    Broker.next_expiry_ns = lambda _: None
    raise LogDirsLost({"/d": "played"})


ENDS = {"leave": forever, "prepare": forever, "close": blocked}

if __name__ == "__main__":
    how = sys.argv.pop(1)
    if how == "expire":
        Broker.expire, Broker.next_expiry_ns = lost, lambda _: 0
    else:
        setattr(KafkaApis, how, ENDS[how])
    main()
