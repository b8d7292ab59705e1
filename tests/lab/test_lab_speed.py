"""Test of the gateways' speed on an unlimited WAN.

Throughput and added delay are compared with a plain relay in the same run.
"""

import pytest

pytest.importorskip("fjm2bench", reason="the package is not installed")

from fjm2bench.comparison.wan import DIRECT, OURS, PLAIN, WanPlan, measure, rows_of
from internet import Internet

pytestmark = [pytest.mark.root, pytest.mark.alone]

GBIT_PER_S_MIN = 2.0
OF_PLAIN_MIN = 5.0
ADDED_US_MAX = 300.0
# NORM measures the gateways best: its publisher and subscriber leave them more CPU time than those of JMS. The window
# takes most of a second to open, which belongs to the start of a run and not to the gateways' speed.
PLAN = WanPlan(layer="norm", size=8192, seconds=5.0, round_trips=1000, settings="rate=none&flow=min&loopback=off")


def test_gateways_are_fast(lab: Internet) -> None:  # noqa: ARG001, skips the test if the lab cannot be made
    rows = {row.system: row for row in rows_of(measure(PLAN, 3))}
    ours = rows[OURS]
    told = ", ".join(f"{name} {rows[name].gbit_per_s:.2f} Gbit/s" for name in (DIRECT, OURS, PLAIN))
    print(f"{told}; {ours.of_plain:.1f} times the plain relay, {ours.added_p50_us:.0f} us added")
    assert ours.gbit_per_s >= GBIT_PER_S_MIN, told
    assert ours.of_plain is not None
    assert ours.of_plain >= OF_PLAIN_MIN, told
    assert ours.added_p50_us is not None
    assert ours.added_p50_us < ADDED_US_MAX
