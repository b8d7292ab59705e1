"""The handshake pattern KK of the Noise framework, with X25519, AES-256-GCM and SHA-256.

    -> s, <- s         known beforehand
    -> e, es, ss
    <- e, ee, se

Both sides know each other's static key beforehand. One round trip agrees on fresh keys, which stay secret even if a
static key is stolen later.
"""

import hashlib
import hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ...keys import KeyPair, PublicKey, exchange

PROTOCOL = b"Noise_KK_25519_AESGCM_SHA256"
_HASH_BYTES = 32
_NONCE_ZERO = bytes(12)


class NoiseError(Exception):
    """A message that does not authenticate."""


def hkdf(chaining_key: bytes, material: bytes) -> tuple[bytes, bytes]:
    """Derive two keys as Noise does (RFC 5869 with the material as input key)."""
    key = hmac.digest(chaining_key, material, "sha256")
    first = hmac.digest(key, b"\x01", "sha256")
    return first, hmac.digest(key, first + b"\x02", "sha256")


class _Symmetric:
    """Noise's symmetric state: a hash of everything sent so far, and a key of everything agreed on so far."""

    __slots__ = ("_chaining", "_hash", "_key")

    def __init__(self, prologue: bytes) -> None:
        self._hash = PROTOCOL.ljust(_HASH_BYTES, b"\0")
        self._chaining = self._hash
        self._key = b""
        self.mix_hash(prologue)

    def mix_hash(self, data: bytes) -> None:
        self._hash = hashlib.sha256(self._hash + data).digest()

    def mix_key(self, material: bytes) -> None:
        self._chaining, self._key = hkdf(self._chaining, material)

    # Each key seals a single message, so the nonce is always zero.
    def seal(self, content: bytes) -> bytes:
        sealed = AESGCM(self._key).encrypt(_NONCE_ZERO, content, self._hash)
        self.mix_hash(sealed)
        return sealed

    def open(self, sealed: bytes) -> bytes:
        try:
            content = AESGCM(self._key).decrypt(_NONCE_ZERO, sealed, self._hash)
        except InvalidTag:
            raise NoiseError from None
        self.mix_hash(sealed)
        return content

    def split(self) -> tuple[bytes, bytes]:
        return hkdf(self._chaining, b"")


class _Party:
    """Base of the two sides of a handshake."""

    __slots__ = ("_ephemeral", "_other", "_own", "_state")

    def __init__(
        self, own: KeyPair, other: PublicKey, ephemeral: bytes, prologue: bytes, initiator_first: bool
    ) -> None:
        self._own = own
        self._other = other
        self._ephemeral = X25519PrivateKey.from_private_bytes(ephemeral)
        self._state = _Symmetric(prologue)
        for key in (own.public, other) if initiator_first else (other, own.public):
            self._state.mix_hash(key.raw)

    @property
    def _ephemeral_public(self) -> bytes:
        return self._ephemeral.public_key().public_bytes_raw()

    def _mix(self, private: X25519PrivateKey, public: bytes) -> None:
        try:
            self._state.mix_key(exchange(private, public))
        except ValueError:
            raise NoiseError from None

    def _mix_static(self, public: bytes) -> None:
        try:
            self._state.mix_key(self._own.exchange(PublicKey(public)))
        except ValueError:
            raise NoiseError from None


class Initiator(_Party):
    """The side that begins the handshake."""

    __slots__ = ()

    def __init__(self, own: KeyPair, other: PublicKey, ephemeral: bytes, prologue: bytes) -> None:
        super().__init__(own, other, ephemeral, prologue, initiator_first=True)

    def write(self, content: bytes = b"") -> tuple[bytes, bytes]:
        """Return the first message: the ephemeral key, and the content sealed."""
        self._state.mix_hash(self._ephemeral_public)
        self._mix(self._ephemeral, self._other.raw)
        self._mix_static(self._other.raw)
        return self._ephemeral_public, self._state.seal(content)

    def read(self, ephemeral: bytes, sealed: bytes) -> tuple[bytes, bytes, bytes]:
        """Read the second message. Return its content, the key to send with and the key to receive with.

        Raise NoiseError if it does not authenticate.
        """
        self._state.mix_hash(ephemeral)
        self._mix(self._ephemeral, ephemeral)
        self._mix_static(ephemeral)
        content = self._state.open(sealed)
        return content, *self._state.split()


class Responder(_Party):
    """The side that answers the handshake."""

    __slots__ = ("_remote_ephemeral",)

    def __init__(self, own: KeyPair, other: PublicKey, ephemeral: bytes, prologue: bytes) -> None:
        super().__init__(own, other, ephemeral, prologue, initiator_first=False)
        self._remote_ephemeral = b""

    def read(self, ephemeral: bytes, sealed: bytes) -> bytes:
        """Read the first message. Return its content. Raise NoiseError if it does not authenticate."""
        self._remote_ephemeral = ephemeral
        self._state.mix_hash(ephemeral)
        self._mix_static(ephemeral)
        self._mix_static(self._other.raw)
        return self._state.open(sealed)

    def write(self, content: bytes = b"") -> tuple[bytes, bytes, bytes, bytes]:
        """Return the second message (ephemeral key, sealed content), the key to send with, the key to receive with."""
        self._state.mix_hash(self._ephemeral_public)
        self._mix(self._ephemeral, self._remote_ephemeral)
        self._mix(self._ephemeral, self._other.raw)
        sealed = self._state.seal(content)
        receive_key, send_key = self._state.split()
        return self._ephemeral_public, sealed, send_key, receive_key
