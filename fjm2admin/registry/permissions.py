"""Rules about which token may register, replace, speak for, and remove which node."""

from collections.abc import Iterable

from ..errors import Refusal
from .nodes import Node, Profile, Registry
from .tokens import Scope, Token, TokenBook


class Permissions:
    """The rules, applied to the known tokens and nodes. Each check raises Refusal if it fails."""

    def __init__(self, tokens: TokenBook, nodes: Registry) -> None:
        self._tokens = tokens
        self._nodes = nodes

    def check_name(self, token: Token, name: str) -> None:
        """Refuse a token that may not register a node of this name."""
        if token.scope is not Scope.GATEWAY:
            raise Refusal(
                403, "wrong_scope", f"a token of scope {token.scope} cannot register: use one of scope gateway"
            )
        if token.node is not None and token.node != name:
            raise Refusal(403, "wrong_node", f"this token is for the node {token.node!r} only")
        if token.node is None and self._tokens.is_for_one(name):
            named = self._nodes.named(name)
            if named is None or named.token_id != token.id:
                raise Refusal(409, "taken", f"there is a token for just the node {name!r}: use that one")

    def check_look(self, profile: Profile, replaced: Iterable[Node]) -> None:
        """Refuse a new name that people would take for the name of another node, other than those to be replaced."""
        names = {other.profile.name for other in replaced}
        other = self._nodes.look_alike(profile.name)
        if other is not None and profile.name not in names and other not in names:
            raise Refusal(
                409,
                "look_alike",
                f"the name {profile.name!r} looks like {other!r}, which is registered: choose another",
            )

    def check_replacement(self, token: Token, other: Node, profile: Profile) -> None:
        """Refuse a token that may not replace a node by one of this profile.

        A node may be replaced by its own token or, once that is revoked, by a token made for this node only.
        """
        if other.id == profile.id and other.profile.public_key != profile.public_key:
            raise Refusal(409, "id_taken", "another key has the same id: make a new key with fjm2d keygen")
        is_heir = token.node == other.profile.name and not self._tokens.is_live(other.token_id)
        if other.token_id == token.id or is_heir:
            return
        what = "name" if other.profile.name == profile.name else "public key"
        raise Refusal(409, "taken", f"the {what} is registered with another token: remove that node first")

    def check_removal(self, token: Token, node: Node) -> None:
        """Refuse a token that is neither the node's own nor of scope admin."""
        if token.scope is not Scope.ADMIN:
            self.check_speaks_for(token, node)

    def check_speaks_for(self, token: Token, node: Node) -> None:
        """Refuse a token other than the one that registered the node."""
        if token.scope is not Scope.GATEWAY or node.token_id != token.id:
            raise Refusal(403, "not_yours", "only the token that registered the node may do this")
