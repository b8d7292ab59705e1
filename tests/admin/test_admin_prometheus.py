"""Test of the service's Prometheus metrics: counters are written with all their digits."""

from collections import Counter
from types import SimpleNamespace
from typing import cast

from fjm2admin.advert import Advertiser
from fjm2admin.registry.nodes import State
from fjm2admin.registry.service import Service
from fjm2admin.web import prometheus
from fjm2admin.web.limits import ConcurrencyLimit

REQUESTS = 123_456_789
SENT = 98_765_432_101


def test_a_large_counter_has_all_its_digits() -> None:
    seats = ConcurrencyLimit(1, 1)
    service = SimpleNamespace(
        nodes=SimpleNamespace(counts=lambda: dict.fromkeys(State, 1)),
        tokens=[],
        waits=seats,
        streams=seats,
        list_age_s=lambda: 0.25,
        fault=None,
        advertiser=cast("Advertiser", SimpleNamespace(sent=SENT, answered=0, dropped=0, failed=0)),
    )
    lines = prometheus.text(cast("Service", service), Counter({200: REQUESTS})).splitlines()
    assert f'fjm2admin_requests_total{{status="200"}} {REQUESTS}' in lines
    assert f"fjm2admin_adverts_sent_total {SENT}" in lines
    assert "fjm2admin_list_age_seconds 0.25" in lines
