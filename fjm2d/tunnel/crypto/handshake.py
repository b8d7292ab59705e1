"""Handshake of two gateways that know each other's public keys, in one round trip.

The messages are those of Noise (`noise.py`), each with a MAC whose key is derived from both static keys. The MAC is
checked first, so that a sender with neither private key causes no more than a hash. The timestamp, which grows with
every attempt, is checked next, so that a replay causes no more either.
"""

import hashlib
import hmac
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from ...keys import KEY_BYTES, KeyPair, PublicKey
from ..wire import MAC_BYTES, Initiation, Response
from .noise import Initiator, NoiseError, Responder

_PROLOGUE = b"fjm2d tunnel 1"
_MAC_LABEL = b"fjm2d tunnel 1 mac"

_CONTENT = struct.Struct(">IQ")
"""Sealed content of a response: session index and time."""

Entropy = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class Agreed:
    """Result of a handshake."""

    send_key: bytes = field(repr=False)
    receive_key: bytes = field(repr=False)
    index: int
    remote_index: int
    stamped_ns: int
    """Timestamp of the peer's message in nanoseconds: older initiations of the peer are replays."""


class Pair:
    """This gateway and one peer, with the MAC keys that are derived from both static keys."""

    __slots__ = ("_mac_key_in", "_mac_key_out", "other", "own")

    def __init__(self, own: KeyPair, other: PublicKey) -> None:
        self.own = own
        self.other = other
        secret = own.exchange(other)
        self._mac_key_out = _mac_key(secret, own.public, other)
        self._mac_key_in = _mac_key(secret, other, own.public)

    def stamp(self, message: bytes) -> bytes:
        """Return a message of ours with its MAC filled in."""
        body = message[:-MAC_BYTES]
        return body + _mac(self._mac_key_out, body)

    def is_genuine(self, message: bytes) -> bool:
        """Return True if the peer made this message for us. It may still be a replay."""
        return hmac.compare_digest(_mac(self._mac_key_in, message[:-MAC_BYTES]), message[-MAC_BYTES:])


class Opening:
    """A handshake that we began."""

    __slots__ = ("_noise", "index", "message")

    def __init__(self, pair: Pair, index: int, timestamp_ns: int, entropy: Entropy) -> None:
        self.index = index
        blank = Initiation(pair.own.public.id, index, timestamp_ns, bytes(KEY_BYTES), bytes(MAC_BYTES))
        self._noise = Initiator(pair.own, pair.other, entropy(KEY_BYTES), _PROLOGUE + blank.head)
        ephemeral, proof = self._noise.write()
        message = Initiation(blank.sender_id, index, timestamp_ns, ephemeral, proof)
        self.message = pair.stamp(message.encode())

    def finish(self, response: Response) -> Agreed | None:
        """Return the keys agreed on, from a response with a genuine MAC.

        Return None if the response does not answer this handshake.
        """
        try:
            content, send_key, receive_key = self._noise.read(response.ephemeral, response.sealed)
        except NoiseError:
            return None
        return Agreed(send_key, receive_key, self.index, *_CONTENT.unpack(content))


def answer(
    pair: Pair, message: Initiation, index: int, timestamp_ns: Callable[[], int], entropy: Entropy
) -> tuple[Agreed, bytes] | None:
    """Return the keys agreed on, and the response, for an initiation with a genuine MAC.

    Return None if the initiation is forged after all.
    """
    noise = Responder(pair.own, pair.other, entropy(KEY_BYTES), _PROLOGUE + message.head)
    try:
        noise.read(message.ephemeral, message.proof)
        ephemeral, sealed, send_key, receive_key = noise.write(_CONTENT.pack(index, timestamp_ns()))
    except NoiseError:
        return None
    response = Response(message.index, ephemeral, sealed)
    agreed = Agreed(send_key, receive_key, index, message.index, message.timestamp_ns)
    return agreed, pair.stamp(response.encode())


def _mac_key(secret: bytes, sender: PublicKey, receiver: PublicKey) -> bytes:
    return hmac.digest(secret, _MAC_LABEL + sender.raw + receiver.raw, "sha256")


def _mac(key: bytes, body: bytes) -> bytes:
    return hashlib.blake2s(body, key=key, digest_size=MAC_BYTES).digest()
