"""The JMS layer: non-persistent bytes messages on a topic. The subscriber's session acknowledges automatically.

Publisher and subscriber use a context, and bodies of bytes, as the README shows. The subscriber has a listener, unless
`--api` names another way.
"""

from ..base import PubOptions, SubOptions
from .publisher import Publisher
from .round_trips import Echoer, Pinger
from .subscriber import Subscriber


class JmsLayer:
    """The JMS layer, as the commands of the benchmarks use it."""

    system = "fjm2-jms"

    def publisher(self, options: PubOptions) -> Publisher:
        return Publisher(self.system, options)

    def subscriber(self, options: SubOptions) -> Subscriber:
        return Subscriber(self.system, options)

    def pinger(self, uri: str, size: int) -> Pinger:
        return Pinger(uri, size)

    def echoer(self, uri: str) -> Echoer:
        return Echoer(uri)


LAYER = JmsLayer()
