"""The NORM layer: messages laid end to end in a stream, or each sent as a DATA object."""

from ..base import PubOptions, SubOptions
from .publisher import Publisher
from .round_trips import Echoer, Pinger
from .subscriber import Subscriber


class NormLayer:
    """The NORM layer, as the commands of the benchmarks use it."""

    system = "fjm2"

    def publisher(self, options: PubOptions) -> Publisher:
        return Publisher(self.system, options)

    def subscriber(self, options: SubOptions) -> Subscriber:
        return Subscriber(self.system, options)

    def pinger(self, uri: str, size: int) -> Pinger:
        return Pinger(uri, size)

    def echoer(self, uri: str) -> Echoer:
        return Echoer(uri)


LAYER = NormLayer()
