"""Tokens: made here, shown once, kept as a hash, compared in constant time.

A token is `fjm2_ID_SECRET`. The id finds it; the secret has 256 random bits, which no hash gives away.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

_FORM = re.compile(r"fjm2_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_NOBODY = bytes(32)
ADVERT_LABEL = b"fjm2 advert"


class Scope(StrEnum):
    """What a token is good for."""

    GATEWAY = "gateway"
    """Register nodes, speak for them, read the list."""
    VIEW = "view"
    """Read everything."""
    ADMIN = "admin"
    """Read everything, remove nodes."""


@dataclass(frozen=True, slots=True)
class Token:
    """What is kept of a token."""

    id: str
    name: str
    scope: Scope
    node: str | None
    """The only node that a token of scope gateway may speak for; None for any that is nobody else's."""
    digest: bytes
    created_at: float
    revoked_at: float | None = None
    used_at: float | None = None

    @property
    def is_live(self) -> bool:
        return self.revoked_at is None

    @property
    def is_open(self) -> bool:
        """Whether it is no token, but stands for someone without one."""
        return not self.digest

    @property
    def advert_key(self) -> bytes:
        """Seals advertisements to nodes of this token. Both ends can tell it: the gateway from the token's text."""
        return hmac.digest(self.digest, ADVERT_LABEL, "sha256")


def digest_of(text: str) -> bytes:
    """SHA-256 of a token as it is written."""
    return hashlib.sha256(text.encode()).digest()


def make(name: str, scope: Scope, node: str | None, now: float) -> tuple[str, Token]:
    """A new token: its text, and what is kept of it."""
    identity = secrets.token_hex(6)
    text = f"fjm2_{identity}_{secrets.token_urlsafe(32)}"
    return text, Token(identity, name, scope, node, digest_of(text), now)


def looker(address: str) -> Token:
    """Stands for those who may look without a token from an address: what they take, others have still."""
    return Token(f"open {address}", "open page", Scope.VIEW, None, b"", 0.0)


class TokenBook:
    """All tokens, by id."""

    def __init__(self, tokens: Iterable[Token] = ()) -> None:
        self._tokens = {token.id: token for token in tokens}

    def __len__(self) -> int:
        return sum(token.is_live for token in self._tokens.values())

    def replace(self, tokens: Iterable[Token]) -> None:
        self._tokens = {token.id: token for token in tokens}

    def find(self, text: str) -> Token | None:
        """The live token that this is the text of. What is wrong with others cannot be told by how long it takes."""
        match = _FORM.fullmatch(text)
        token = self._tokens.get(match[1]) if match else None
        is_right = hmac.compare_digest(digest_of(text), token.digest if token else _NOBODY)
        return token if token is not None and is_right and token.is_live else None

    @staticmethod
    def is_well_formed(text: str) -> bool:
        """Whether it could be a token."""
        return _FORM.fullmatch(text) is not None

    def is_live(self, token_id: str) -> bool:
        token = self._tokens.get(token_id)
        return token is not None and token.is_live

    def is_for_one(self, node: str) -> bool:
        """Whether there is a live token that was made for this node."""
        return any(token.node == node and token.is_live for token in self._tokens.values())

    def of(self, token_id: str) -> Token | None:
        return self._tokens.get(token_id)
