"""Rates as people write them."""

from urllib.parse import quote

from fjm2.uri import BusConfig


def rate_bps(text: str) -> float | None:
    """Bits per second of "100mbit"; None if there is no limit. ConfigError if it is no rate."""
    return BusConfig.from_uri(f"fjm2://?rate={quote(text)}").sender.rate_bps
