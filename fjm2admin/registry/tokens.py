"""Tokens: shown once when they are made, stored as a hash, and compared in constant time.

A token is `fjm2_ID_SECRET`. It is looked up by its id. The secret has 256 random bits, which cannot be guessed from the
hash.
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
    """Permissions of a token."""

    GATEWAY = "gateway"
    """Permission to register and update nodes, and to read the list."""
    VIEW = "view"
    """Permission to read everything."""
    ADMIN = "admin"
    """Permission to read everything, and to remove nodes."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it is stored, without its secret."""

    id: str
    name: str
    scope: Scope
    node: str | None
    """Name of the only node that a token of scope gateway may register; None for any name that is free."""
    digest: bytes
    created_at: float
    revoked_at: float | None = None
    used_at: float | None = None

    @property
    def is_live(self) -> bool:
        """True unless the token is revoked."""
        return self.revoked_at is None

    @property
    def is_open(self) -> bool:
        """True if this object stands for a viewer who has no token."""
        return not self.digest

    @property
    def advert_key(self) -> bytes:
        """Key that seals advertisements to nodes of this token. Gateways derive it from the token's text."""
        return hmac.digest(self.digest, ADVERT_LABEL, "sha256")


def digest_of(text: str) -> bytes:
    """Return the SHA-256 of a token's text."""
    return hashlib.sha256(text.encode()).digest()


def make(name: str, scope: Scope, node: str | None, now: float) -> tuple[str, Token]:
    """Make a token. Return its text, and the token to store."""
    identity = secrets.token_hex(6)
    text = f"fjm2_{identity}_{secrets.token_urlsafe(32)}"
    return text, Token(identity, name, scope, node, digest_of(text), now)


def anonymous_viewer(address: str) -> Token:
    """Return a token that stands for viewers at an address who have no token. Each address has limits of its own."""
    return Token(f"open {address}", "open page", Scope.VIEW, None, b"", 0.0)


class TokenBook:
    """All tokens, by id."""

    def __init__(self, tokens: Iterable[Token] = ()) -> None:
        self._tokens = {token.id: token for token in tokens}

    def __len__(self) -> int:
        return sum(token.is_live for token in self._tokens.values())

    def replace(self, tokens: Iterable[Token]) -> None:
        """Replace all tokens."""
        self._tokens = {token.id: token for token in tokens}

    def find(self, text: str) -> Token | None:
        """Return the live token that has this text, or None. The time taken does not tell what is wrong with a text."""
        match = _FORM.fullmatch(text)
        token = self._tokens.get(match[1]) if match else None
        is_right = hmac.compare_digest(digest_of(text), token.digest if token else _NOBODY)
        return token if token is not None and is_right and token.is_live else None

    @staticmethod
    def is_well_formed(text: str) -> bool:
        """Return True if a text has the form of a token."""
        return _FORM.fullmatch(text) is not None

    def is_live(self, token_id: str) -> bool:
        """Return True if there is a token with this id that is not revoked."""
        token = self._tokens.get(token_id)
        return token is not None and token.is_live

    def is_for_one(self, node: str) -> bool:
        """Return True if there is a live token that was made for this node only."""
        return any(token.node == node and token.is_live for token in self._tokens.values())

    def of(self, token_id: str) -> Token | None:
        """Return the token with this id, live or revoked; None if there is none."""
        return self._tokens.get(token_id)
