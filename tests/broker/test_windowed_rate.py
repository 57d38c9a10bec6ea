"""The rate of replication quotas, compared with the output of Kafka's own code."""

from __future__ import annotations

import pytest

from broker.requests.windowed_rate import ByteRate, Windows

# Output of Kafka 3.9.1's SimpleRate with four windows of a second, for events drawn by
# java.util.Random(7): (milliseconds, bytes) recorded, (milliseconds, rate) measured.
RECORDED, MEASURED = "r", "m"
KAFKA = """
m 164 0.0
r 444 2968
m 894 2968.0
m 24606 0.0
r 25201 2961
m 36508 0.0
m 37032 0.0
r 37850 239
r 38726 123
m 38805 157.59686547670873
r 38897 2506
r 62131 3880
r 62878 4395
r 63067 652
m 88312 0.0
r 88556 4208
m 88682 4208.0
m 88907 4208.0
m 89779 2868.4389911383773
r 90584 4347
m 91436 2738.4763124199744
m 92050 2288.657035848047
r 106271 2598
m 106565 2598.0
r 106662 208
r 107087 4406
m 107574 5534.919416730622
m 108155 3828.0254777070068
r 108900 1948
r 124191 795
m 125006 795.0
r 125669 2441
r 126323 2985
r 126825 2405
m 127464 2635.502597005805
m 128141 2183.7974683544303
r 133010 3156
m 133115 3156.0
r 133516 590
m 133977 3746.0
m 134341 2814.4252441773106
r 134876 4910
r 136528 1361
m 136670 2736.8852459016393
m 137534 2359.2927012791574
m 137629 2277.87867780603
r 163806 637
r 176097 1659
r 176889 1109
r 177508 3347
m 178011 3194.8798328108674
m 178579 2463.7389202256245
m 178997 2108.6206896551726
r 182405 2882
m 183187 2882.0
m 183804 2060.0428877769837
m 184135 1665.8959537572255
r 184877 610
m 185645 1077.7777777777776
m 186472 185.6925418569254
"""


def test_the_rate_is_kafkas_at_every_moment() -> None:
    rate, compared = ByteRate(Windows(count=4)), 0
    for line in KAFKA.strip().splitlines():
        what, at_ms, number = line.split()
        if what == RECORDED:
            rate.record(int(number), int(at_ms))
        else:
            assert rate.per_s(int(at_ms)) == pytest.approx(float(number), rel=1e-12)
            compared += 1
    assert compared > 20
