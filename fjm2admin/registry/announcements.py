"""Announcements of changes: the list for gateways, events for pages, and advertisements by UDP."""

import socket
from collections.abc import Mapping

from fjm2.base.logs import Log

from ..advert import Advertiser, Target
from ..web.feed import ListFeed
from ..web.live import Live
from .nodes import Node, Registry, State
from .tokens import TokenBook

log = Log("fjm2admin.nodes")


class Announcements:
    """Announcements to gateways and pages that nodes have changed."""

    feed: ListFeed
    """The list as gateways read it. It exists after `open`."""
    live: Live
    """The events for pages. They exist after `open`."""

    def __init__(self, nodes: Registry, tokens: TokenBook, advertise_from: socket.socket | None) -> None:
        self._nodes = nodes
        self._tokens = tokens
        self.advertiser = (
            None if advertise_from is None else Advertiser(advertise_from, lambda: self.feed.snapshot.version)
        )
        self._is_moved = False
        """True if some node's requests came from a new address since the advertiser got its targets."""

    def open(self, list_version: int, about: Mapping[str, object]) -> None:
        """Make the first list, with a version above `list_version`, and begin to answer queries by UDP."""
        self.feed = ListFeed(self._nodes, list_version, self._publish)
        self.live = Live(self._nodes, self._nodes.find, dict(about))
        if self.advertiser is not None:
            self.advertiser.open()
        self.update_targets()

    def end_waits(self) -> None:
        """Release all requests that wait for a change, so that the server can stop."""
        self.feed.close()
        self.live.close()

    def close(self) -> None:
        """Stop answering by UDP."""
        if self.advertiser is not None:
            self.advertiser.close()

    def note_change(self, node: Node) -> None:
        """Announce that a node's entry of the list has changed."""
        self.feed.changed()
        self.live.note(node.id)

    def note_move(self) -> None:
        """Note that a node has a new address: from the next tick on, advertisements go there."""
        self._is_moved = True

    def tick(self) -> None:
        """Send the changes since the last tick to the pages."""
        if self._is_moved:
            self.update_targets()
        self.live.tick()

    def update_targets(self) -> None:
        """Set the targets of advertisements: the nodes that are not gone, each with the key of its token."""
        self._is_moved = False
        if self.advertiser is None:
            return
        targets = []
        for node in self._nodes:
            token = self._tokens.of(node.token_id)
            if node.state is not State.GONE and token is not None and token.is_live:
                targets += [Target(address, token.advert_key) for address in node.advert_addresses()]
        self.advertiser.know(targets)

    def advertise(self) -> None:
        """Send the list's version to every target."""
        if self.advertiser is not None:
            self.advertiser.advertise()

    def _publish(self, version: int) -> None:
        log.debug("list_published", version=version, nodes=len(self._nodes))
        if self.advertiser is not None:
            self.update_targets()
            self.advertiser.advertise()
