"""Sends whose messages keepers keep as last values."""

from time import time_ns
from typing import TYPE_CHECKING, Final, TypeAlias

from fjm2.base.quantities import shortened
from fjm2.bus.publication import BatchPost, Post
from fjm2.messages.destination import Destination
from fjm2.messages.errors import IllegalStateError, InvalidDestinationError, JMSError, MessageFormatError
from fjm2.messages.files.file_message import FileBody
from fjm2.messages.frame import Parts
from fjm2.messages.header import DELAYED, HEADER, PERSISTENT, RETAINED_SEND
from fjm2.messages.last_values.retained import KEY_BYTES_MAX, STAMPS, key_of, retained_parts, retained_section

from ..settings import can_be_encoded
from .need import NOTHING, Need

if TYPE_CHECKING:
    from ..endpoint import Endpoint
    from .hub import ValuesHub

Retain: TypeAlias = bool | str
"""False for an ordinary message; True for the last value of a topic; the name of a property for the last value of the
topic for each value of the property."""
_SHOWN: Final = 60


def check_retain(retain: object) -> str:
    """Return the name of the key's property; an empty one if the topic has one value. Raise TypeError or ValueError if
    `retain` is neither True nor a name."""
    if retain is True:
        return ""
    if not isinstance(retain, str):
        raise TypeError(f"retain={shortened(repr(retain), _SHOWN)}: expected True, False, or the name of a property")
    if not retain or not can_be_encoded(retain) or len(retain.encode()) > KEY_BYTES_MAX:
        raise ValueError(
            f"retain={shortened(repr(retain), _SHOWN)}: expected the name of a property, 1 to {KEY_BYTES_MAX} bytes"
        )
    return retain


class Retaining:
    """Makes last values of the messages of one session."""

    def __init__(self, endpoint: "Endpoint", is_transacted: bool) -> None:
        self._endpoint = endpoint
        self._is_transacted = is_transacted
        self._hub: ValuesHub | None = None
        """Everything that knows of keepers; None before the first send. Threads look at it."""

    def post(self, post: Post, retain: Retain) -> Post:
        """Return a message as a last value."""
        destination, priority, parts, flags = post
        section = self._section(destination, flags, retain)
        return destination, priority, _retained(parts, section, retain), flags | RETAINED_SEND

    def batch(self, post: BatchPost, retain: Retain) -> BatchPost:
        """Return the messages of a batch as last values."""
        from fjm2.messages.batches.array_writer import join_frames  # only now: it loads numpy

        destination, priority, arrays, flags = post
        section = self._section(destination, flags, retain)
        made = [
            array
            for frames in arrays
            for array in join_frames([_retained(each, section, retain) for each in frames.parts()], len(frames))
        ]
        return destination, priority, made, flags | RETAINED_SEND

    def _section(self, destination: Destination, flags: int, retain: Retain) -> bytes:
        """Return the section of a send. Raise JMSError if keepers would not keep its message."""
        key = check_retain(retain)
        if self._is_transacted:
            raise IllegalStateError(
                "retain in a transacted session: expected a session that is not, as last values are stored one by one"
            )
        if destination.kind_flags:
            raise InvalidDestinationError(f"retain with {destination}: expected a Topic, which has last values")
        if not flags & PERSISTENT:
            raise JMSError("retain with NON_PERSISTENT: expected PERSISTENT, as keepers have to store the message")
        if flags & DELAYED:
            raise JMSError("retain with a delivery_delay: expected a delay of 0, as it is the last value at once")
        return retained_section(key, STAMPS.next(time_ns() // 1000))

    # Room

    def may_send(self, need: Need) -> bool:
        """Return True if keepers are known to have room for so many values. Any thread may ask. Otherwise, await
        `room_for` before the send. Removals need no room, but keepers."""
        hub = self._hub
        return hub is not None and (need == NOTHING or hub.try_grant(need))

    async def admit(self, dest: Destination | None, need: Need) -> None:
        """Wait until keepers are known to have room for so many values. Raise ResourceAllocationError if there are no
        keepers, or if they have no room."""
        if not self.may_send(need):
            await self.room_for(dest, need)

    async def room_for(self, dest: Destination | None, need: Need) -> None:
        """Do the same as `admit` if `may_send` has returned False."""
        endpoint = self._endpoint
        endpoint.check_open()
        subject = f"retain with {dest}" if dest is not None else "retain"
        heartbeat = (await endpoint.cell(subject)).heartbeat
        hub = self._hub = endpoint.values.hub
        if need != NOTHING and heartbeat is not None:
            await hub.grant(subject, need, heartbeat)


def _retained(parts: Parts, section: bytes, retain: Retain) -> Parts:
    head, body = parts
    if type(body) is FileBody:
        raise MessageFormatError("retain with a file: expected a message of one frame, which can be a last value")
    if isinstance(retain, str) and key_of(head, HEADER.unpack_from(head), retain) is None:
        raise MessageFormatError(
            f"retain={shortened(repr(retain), _SHOWN)}: the message has no such property: set it, or pass retain=True"
        )
    return retained_parts(parts, section)
