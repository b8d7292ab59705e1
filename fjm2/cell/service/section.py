"""The state that decisions left to the service, as a section of snapshots."""

from typing import Final

from .decided import Decided, Touched
from .kept_requests import SettledRequests
from .state_codec import decode_state, encode_state


class ServiceSection:
    """Sessions, subscriptions and their cursors. Implements `fjm2.cell.snapshots.sections.Section`."""

    name: Final = "service/1"

    def __init__(self) -> None:
        self.state = Decided()
        """The state that decisions left."""
        self.is_adopted = False
        """True if a snapshot has replaced the state since the caller last cleared this."""
        self.settled = SettledRequests()

    @property
    def index(self) -> int:
        """Index of the last entry that the state includes. It may lag behind the log: requests have to be read."""
        return self.state.index

    def encode(self, index: int) -> bytes:
        """Return the state, which is taken only when it includes the entry at `index` and none after it."""
        if index == self.state.index:
            self.settled.note_snapshot(index, self.state.through)
        return encode_state(self.state)

    def decode(self, data: bytes) -> Decided | None:
        """Return the state that `data` encode, or None if they are malformed."""
        return decode_state(data)

    def adopt(self, state: Decided, index: int, now: float) -> None:
        """Take a state of which all subscriptions may need less than before."""
        del now
        state.index = index
        for cursor in (*self.state.cursors.values(), *state.cursors.values()):
            state.touched[Touched(cursor.frame_hash, None)] = None
        self.state = state
        self.settled.note_snapshot(index, state.through)
        self.is_adopted = True
