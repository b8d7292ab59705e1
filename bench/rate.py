"""Bit rates as people write them, such as "100mbit"."""

from urllib.parse import quote

from fjm2.uri import BusConfig


def rate_bps(text: str) -> float | None:
    """Return the bits per second of a text such as "100mbit"; None means no limit. Raise ConfigError for others."""
    return BusConfig.from_uri(f"fjm2://?rate={quote(text)}").sender.rate_bps
