"""Protocols of the peers and trains that the forwarder handles. The tunnel provides both; neither package imports the
other."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..kinds import Kind


class NamedPeer(Protocol):
    """A gateway that trains come from."""

    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...


class ForwardingPeer(NamedPeer, Protocol):
    """A gateway that trains go to."""

    @property
    def is_up(self) -> bool: ...


class ReceivedTrain(Protocol):
    """A train from a peer."""

    @property
    def peer(self) -> NamedPeer: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def group(self) -> int: ...
    @property
    def data(self) -> NDArray[np.uint8]: ...
    @property
    def segment_bytes(self) -> int: ...
