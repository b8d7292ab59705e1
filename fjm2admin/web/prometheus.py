"""Metrics of the service in Prometheus's text format."""

from collections.abc import Iterable, Mapping

from fjm2.base import exposition
from fjm2.base.exposition import Family, Kind

from ..registry.service import Service

_Sample = tuple[Mapping[str, object], float]


def text(service: Service, answers: Mapping[int, int]) -> str:
    """Return the text of all metrics."""
    families: list[Family] = []

    def add(name: str, kind: Kind, sentence: str, samples: Iterable[_Sample]) -> None:
        families.append(Family(f"fjm2admin_{name}", kind, sentence, samples))

    counts = service.nodes.counts()
    add("nodes", "gauge", "Registered nodes.", (({"state": state}, count) for state, count in counts.items()))
    add("tokens", "gauge", "Tokens that are not revoked.", [({}, len(service.tokens))])
    add("waiting", "gauge", "Requests that wait for a change of the list.", [({}, service.waits.count)])
    add("watching", "gauge", "Open pages.", [({}, service.streams.count)])
    add("list_age_seconds", "gauge", "Seconds since the list changed.", [({}, service.list_age_s())])
    add("store_failing", "gauge", "1 if the file cannot be used.", [({}, int(service.fault is not None))])
    statuses = sorted(answers.items())
    add("requests_total", "counter", "Requests answered.", (({"status": status}, count) for status, count in statuses))
    advertiser = service.advertiser
    if advertiser is not None:
        for name, value in (
            ("sent", advertiser.sent),
            ("answered", advertiser.answered),
            ("dropped", advertiser.dropped),
            ("failed", advertiser.failed),
        ):
            add(f"adverts_{name}_total", "counter", f"Advertisements by UDP: {name}.", [({}, value)])
    return exposition.text(families)
