"""The looks of systems. Each system has a colour, a marker and a line, which are the same in all plots.

The colours are Okabe and Ito's, which colour-blind people can tell apart; markers tell further systems apart. FJM2's
own lines are warm and thick.
"""

from dataclasses import dataclass

FONT_PT = 9.0
INK, FAINT, GRID = "#1b1b1b", "#5c5c5c", "#dddddd"


@dataclass(frozen=True, slots=True)
class Look:
    """The look of one system."""

    colour: str
    marker: str
    line: str = "-"
    is_ours: bool = False

    @property
    def width(self) -> float:
        return 2.6 if self.is_ours else 1.3


_VERMILION, _ORANGE, _BLUE, _SKY = "#D55E00", "#E69F00", "#0072B2", "#56B4E9"
_GREEN, _PURPLE, _BLACK, _GREY, _VIOLET, _BROWN = "#009E73", "#CC79A7", "#000000", "#777777", "#5B4A8A", "#8C5A2B"

LOOKS = {
    "fjm2-jms": Look(_VERMILION, "o", is_ours=True),
    "fjm2": Look(_ORANGE, "s", is_ours=True),
    "fjm2d": Look(_VERMILION, "o", is_ours=True),
    "libnorm": Look(_BLUE, "^"),
    "pyzmq": Look(_GREEN, "v"),
    "zenoh": Look(_PURPLE, "D"),
    "cyclonedds": Look(_SKY, "P"),
    "nats": Look(_VIOLET, "X"),
    "mosquitto": Look(_GREY, "h"),
    "jgroups": Look(_BROWN, "<"),
    "activemq": Look(_BLACK, ">"),
    "activemq-stomp": Look(_BLACK, "*", "--"),
    "plain-relay": Look(_GREY, "h"),
    "direct": Look(_BLUE, "^"),
    "udp-unicast": Look(_BLUE, "^"),
    "udp-multicast": Look(_GREEN, "v"),
    "udp-trains": Look(_PURPLE, "D"),
    "udp-c": Look(_BLACK, ">"),
    "zfec": Look(_BLUE, "^"),
    "creedsolo": Look(_GREY, "h"),
}
_COLOURS = (_BLUE, _VERMILION, _GREEN, _PURPLE, _SKY, _BLACK, _ORANGE, _BROWN)
_OTHERS = [Look(colour, marker) for colour, marker in zip(_COLOURS, "^ovDP>sX", strict=True)]
"""Looks of systems that are not in `LOOKS`, by their position in the plot."""

NAMES = {
    "fjm2-jms": "FJM2 (JMS)",
    "fjm2": "FJM2 (NORM)",
    "fjm2d": "fjm2d",
    "libnorm": "libnorm (C++)",
    "pyzmq": "ZeroMQ (pyzmq)",
    "zenoh": "Zenoh (Python)",
    "cyclonedds": "Cyclone DDS (Python)",
    "nats": "NATS (Python)",
    "mosquitto": "Mosquitto (MQTT)",
    "jgroups": "JGroups (Java)",
    "activemq": "ActiveMQ (Java)",
    "activemq-stomp": "ActiveMQ (STOMP)",
    "plain-relay": "plain relay",
    "direct": "no gateways",
    "udp-unicast": "UDP unicast",
    "udp-multicast": "UDP multicast",
    "udp-trains": "UDP multicast, trains",
    "udp-c": "UDP multicast, C",
}
_ORDER = {system: place for place, system in enumerate(LOOKS)}


def look_of(system: str, place: int = 0) -> Look:
    return LOOKS.get(system) or _OTHERS[place % len(_OTHERS)]


def name_of(system: str) -> str:
    return NAMES.get(system, system)


def order_of(system: str) -> tuple[int, str]:
    """Return a sort key that puts FJM2 first."""
    return _ORDER.get(system, len(_ORDER)), system
