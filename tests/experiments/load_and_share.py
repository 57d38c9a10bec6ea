"""The content of a config that sweeps load and share of control."""

from __future__ import annotations

from typing import Any

CONTROL = "workload.traffic.control.arrivals.rate_per_s"
PRODUCE = "workload.traffic.produce.arrivals.rate_per_s"
Content = dict[str, Any]


def traffic(name: str, api: str) -> Content:
    return {
        "name": name,
        "arrivals": {"kind": "poisson", "rate_per_s": 1000},
        "request": {"api": api},
        "service": {"kind": "exponential", "mean_us": 1000},
        "connections": 4,
    }


def content() -> Content:
    """Sweep load x share of control; both scale the rates."""
    return {
        "experiment": {
            "name": "small",
            "seed": 3,
            "blocks": 2,
            "baseline": "fifo",
            "again": False,
            "world": "model",
        },
        "workload": {
            "duration_s": 0.05,
            "traffic": [
                traffic("control", "leader-and-isr"),
                traffic("produce", "produce"),
            ],
        },
        "arms": [
            {"name": "fifo", "scheduler": "fifo"},
            {"name": "priority.x", "scheduler": "priority"},
        ],
        "broker": {"set": {"queued.max.requests": 50}},
        "sweep": {
            "design": "factorial",
            "factors": [
                {
                    "name": "load",
                    "levels": [
                        {"name": "0.5", "scale": {CONTROL: 0.5, PRODUCE: 0.5}},
                        {"name": "0.8", "scale": {CONTROL: 0.8, PRODUCE: 0.8}},
                    ],
                },
                {
                    "name": "share",
                    "levels": [
                        {"name": "few", "scale": {CONTROL: 0.1, PRODUCE: 0.9}},
                        {"name": "none", "set": {CONTROL: 0}},
                    ],
                },
            ],
        },
    }


def listed(*entries: Content) -> Content:
    return {
        **content(),
        "sweep": {"design": "listed", "points": list(entries)},
    }
