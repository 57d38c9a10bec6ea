"""Kafka's own account of its requests' time: ``RequestMetrics`` over JMX.

Kafka keeps a histogram per API and phase: RequestQueue, Local, Remote, Throttle,
ResponseQueue, ResponseSend, and Total. It keeps no row per request, and its histograms
favour the last five minutes. These values are therefore means of a whole run and its
warm-up, for comparison with this project's stamps, not for joining with them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

from experiments.processes.children import RunFailed
from experiments.worlds.kafka import apache_kafka

_MBEAN = "kafka.network:type=RequestMetrics"
PHASES = (
    "RequestQueueTimeMs",
    "LocalTimeMs",
    "RemoteTimeMs",
    "ThrottleTimeMs",
    "ResponseQueueTimeMs",
    "ResponseSendTimeMs",
    "TotalTimeMs",
)
_TIMEOUT_S = 30.0

Phases = dict[str, dict[str, float]]


def read_or_fail(version: str, jmx_port: int) -> Phases:
    """Call `read`.

    :raises RunFailed: if Kafka's metrics cannot be read.
    """
    try:
        return read(version, jmx_port)
    except subprocess.SubprocessError as error:
        raise RunFailed(f"Kafka's metrics cannot be read: {error}") from error


def read(version: str, jmx_port: int) -> Phases:
    """Return the mean milliseconds of each phase, by API with requests.

    :raises subprocess.SubprocessError: if Kafka's own JMX tool fails or hangs.
    """
    command = [
        str(apache_kafka.java()),
        *("-cp", f"{apache_kafka.jars(version)}/*"),
        "org.apache.kafka.tools.JmxTool",
        *("--jmx-url", f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{jmx_port}/jmxrmi"),
        *("--object-name", f"{_MBEAN},name=*TimeMs,request=*"),
        *("--attributes", "Mean,Count"),
        *("--one-time", "--report-format", "tsv"),
    ]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=_TIMEOUT_S
    )
    return parse(done.stdout.splitlines())


def parse(lines: Iterable[str]) -> Phases:
    """Parse the tool's lines, ``OBJECT:ATTRIBUTE<tab>VALUE``; drop unused APIs.

    >>> name = "kafka.network:type=RequestMetrics,name=LocalTimeMs,request=Fetch"
    >>> parse([f"{name}:Count\\t2", f"{name}:Mean\\t1.5", "time\\t17"])
    {'Fetch': {'LocalTimeMs': 1.5}}
    """
    values: dict[tuple[str, str], dict[str, float]] = {}
    for line in lines:
        name, _, value = line.partition("\t")
        if not name.startswith(_MBEAN):
            continue
        bean, _, attribute = name.rpartition(":")
        keys = dict(it.split("=", 1) for it in bean.partition(":")[2].split(","))
        of_phase = values.setdefault((keys["request"], keys["name"]), {})
        of_phase[attribute] = float(value)
    found: Phases = {}
    for (api, phase), each in sorted(values.items()):
        if phase in PHASES and each.get("Count"):
            found.setdefault(api, {})[phase] = each["Mean"]
    return found
