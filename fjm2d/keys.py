"""A gateway's identity: an X25519 key pair in a file that only its owner may read."""

import base64
import binascii
import functools
import hashlib
import os
import stat
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from .errors import KeyFileError, KeyTextError

KEY_BYTES = 32
_FILE_BYTES_MAX = 1024
"""Maximum number of bytes read of a key file, which has 45."""
_ALLOWED_TEXT = f"{KEY_BYTES} bytes in base64, as `fjm2d keygen` prints them"


class PublicKey:
    """A gateway's public key, from which its id is derived. It may be shown to anyone."""

    __slots__ = ("id", "raw")

    def __init__(self, raw: bytes) -> None:
        if len(raw) != KEY_BYTES:
            raise KeyTextError(f"a public key of {len(raw)} bytes; expected {_ALLOWED_TEXT}")
        self.raw = raw
        self.id = int.from_bytes(hashlib.sha256(raw).digest()[:4])
        """Id of the gateway: the first 32 bits of the key's SHA-256."""

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read a key in base64. Raise KeyTextError if the text is no key, or a weak key."""
        try:
            raw = base64.b64decode(text.strip(), validate=True)
        except (binascii.Error, ValueError):
            raise KeyTextError(f"{text[:60]!r} is not a public key; expected {_ALLOWED_TEXT}") from None
        key = cls(raw)
        if not _is_usable(raw):
            raise KeyTextError(
                f"{text[:60]!r} is weak: it gives everybody the same secret; expected one made by `fjm2d keygen`"
            )
        return key

    @property
    def text(self) -> str:
        """The key in base64, as in configurations and node lists."""
        return base64.b64encode(self.raw).decode("ascii")

    @property
    def id_text(self) -> str:
        """The id in eight hexadecimal digits."""
        return f"{self.id:08x}"

    @property
    def fingerprint(self) -> str:
        """The key's SHA-256 in groups of four digits, to compare by telephone. The first two groups are the id."""
        digits = hashlib.sha256(self.raw).hexdigest()[:32]
        return " ".join(digits[start : start + 4] for start in range(0, len(digits), 4))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicKey) and other.raw == self.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return f"PublicKey({self.text!r})"


class KeyPair:
    """A gateway's private key with its public key. `repr` does not show the private key, and pickling is refused."""

    __slots__ = ("_private", "public")

    def __init__(self, private: bytes) -> None:
        if len(private) != KEY_BYTES:
            raise KeyTextError(f"a private key of {len(private)} bytes; expected {KEY_BYTES}")
        self._private = X25519PrivateKey.from_private_bytes(private)
        self.public = PublicKey(self._private.public_key().public_bytes_raw())

    @classmethod
    def generate(cls) -> Self:
        """Return a new random pair."""
        return cls(os.urandom(KEY_BYTES))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a key file. Raise KeyFileError if others may read or write it, or if it holds no key."""
        text = _read_guarded(Path(path))
        try:
            return cls(base64.b64decode(text.strip(), validate=True))
        except ValueError:
            raise KeyFileError(f"{path}: holds no private key; make one with `fjm2d keygen`") from None

    def save(self, path: str | Path) -> None:
        """Write a key file that only its owner may read. Raise KeyFileError if the file exists."""
        content = base64.b64encode(self._private.private_bytes_raw()) + b"\n"
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise KeyFileError(f"{path}: exists, and a key is not overwritten; remove it first to replace it") from None
        except OSError as error:
            raise KeyFileError(f"{path}: {error.strerror}") from None
        try:
            with os.fdopen(file, "wb") as writer:
                os.fchmod(file, 0o600)  # independent of the umask
                writer.write(content)
                writer.flush()
                os.fsync(file)
        except OSError as error:
            Path(path).unlink()
            raise KeyFileError(f"{path}: {error.strerror}") from None

    def exchange(self, other: PublicKey) -> bytes:
        """Return the secret that this gateway shares with the owner of `other`. Raise ValueError for a weak key."""
        return exchange(self._private, other.raw)

    def __repr__(self) -> str:
        return f"<KeyPair {self.public.id_text}>"

    def __reduce__(self) -> str:
        raise TypeError("a private key cannot be pickled")


def exchange(private: X25519PrivateKey, public: bytes) -> bytes:
    """Return the shared secret of X25519. Raise ValueError for a public key of low order: all know its secrets."""
    return private.exchange(X25519PublicKey.from_public_bytes(public))


@functools.lru_cache(16_384)
def _is_usable(raw: bytes) -> bool:
    """Return True if secrets can be agreed on with a key. Results are cached, because an exchange delays trains."""
    try:
        exchange(X25519PrivateKey.generate(), raw)
    except ValueError:
        return False
    return True


def readable_by_others(path: Path) -> str:
    """Return a warning if others may read a file that holds a secret; an empty text if only its owner may."""
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        return ""
    return f"{path}: mode {mode:04o} lets others read the token; `chmod 600 {path}`" if mode & 0o077 else ""


def _read_guarded(path: Path) -> bytes:
    """Return a file's content. Raise KeyFileError if others may read or write it."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise KeyFileError(f"{path}: no such file; make one with `fjm2d keygen`") from None
    except OSError as error:
        raise KeyFileError(f"{path}: {error.strerror}") from None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise KeyFileError(f"{path}: is not a regular file; name the file with the private key")
        if status.st_mode & 0o077:
            mode = stat.S_IMODE(status.st_mode)
            raise KeyFileError(f"{path}: mode {mode:04o} lets others read the private key; `chmod 600 {path}`")
        # Root may read the service's key, as `fjm2d check` does.
        if status.st_uid not in (os.geteuid(), 0) and os.geteuid() != 0:
            raise KeyFileError(
                f"{path}: belongs to user {status.st_uid}; expected the user that runs the gateway, or root"
            )
        return os.read(file, _FILE_BYTES_MAX)
    finally:
        os.close(file)
