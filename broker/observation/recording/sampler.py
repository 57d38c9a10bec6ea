"""Samples the planes at a fixed period for the recording."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import trio

from broker.network.processor import Processor
from broker.network.request_channel import RequestChannel
from broker.observation.recording.recording import Recorder, SampleRow
from planes import PlaneCore
from planes.clock import NowNs
from planes.cpu_ledger import CpuLedger


class Sampler:
    """Sampler of queues and idle times; ``processors`` are the processors by plane."""

    def __init__(
        self,
        channels: Sequence[RequestChannel],
        processors: Mapping[PlaneCore, Sequence[Processor]],
        recorder: Recorder,
        now_ns: NowNs,
        ledger: CpuLedger,
    ) -> None:
        self._channels = channels
        self._processors = processors
        self._recorder = recorder
        self._now_ns = now_ns
        self._ledger = ledger
        self._last_ns = now_ns()
        self._busy_ns: dict[PlaneCore, int] = {}
        self._idle_ns: dict[PlaneCore, int] = {}
        self._kept_house_ns = 0

    async def run(self, period_ns: int) -> None:
        """Take a sample per period until cancelled."""
        while True:
            await trio.sleep(period_ns / 1e9)
            with self._ledger.of("samples"):
                self.sample()

    def sample(self) -> None:
        """Record one row per plane, and write all rows to the operating system."""
        now_ns = self._now_ns()
        period_ns = now_ns - self._last_ns
        self._last_ns = now_ns
        if period_ns <= 0:
            return
        kept_house_ns = self._ledger.housekeeping_ns
        share = _ratio(kept_house_ns - self._kept_house_ns, period_ns)
        self._kept_house_ns = kept_house_ns
        for channel in self._channels:
            self._recorder.sample(self._row(channel, now_ns, period_ns, share))
        self._recorder.flush()

    def _row(
        self, channel: RequestChannel, now_ns: int, period_ns: int, housekeeping: float
    ) -> SampleRow:
        plane = channel.plane
        processors = self._processors[plane]
        busy_ns = plane.attained_ns
        idle_ns = sum(processor.idle_ns(now_ns) for processor in processors)
        used_ns = busy_ns - self._busy_ns.get(plane, 0)
        waited_ns = idle_ns - self._idle_ns.get(plane, 0)
        self._busy_ns[plane], self._idle_ns[plane] = busy_ns, idle_ns
        return SampleRow(
            t_ns=now_ns,
            plane=plane.name,
            queued=plane.queued,
            waiting=len(plane.scheduler),
            seated=plane.seated,
            refused=channel.refused,
            handler_idle=_ratio(period_ns - used_ns, period_ns),
            processor_idle=_ratio(waited_ns, period_ns * len(processors)),
            housekeeping=housekeeping,
        )


def _ratio(part: int, whole: int) -> float:
    return min(max(part / whole, 0.0), 1.0)
