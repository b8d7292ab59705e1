"""Requests and replies for threads."""

from fjm2.jms import requestor as aio_requestor
from fjm2.jms import session as aio_session
from fjm2.messages.destination import Topic
from fjm2.messages.message import Message

from .closing import Closable
from .loop_thread import run
from .session import Session, threads_of


class TopicRequestor(Closable):
    """Sends requests to a topic, one at a time, and returns the first reply to each. It needs a session of its own."""

    def __init__(self, session: Session, topic: Topic) -> None:
        self._threads = threads_of(session)
        self._inner = run(aio_requestor.TopicRequestor, aio_session.Session(self._threads.core), topic)

    def request(self, message: Message, timeout: float | None = None) -> Message | None:
        """Send the message with a reply-to, and return the first reply; None after `timeout` seconds."""
        reply: Message | None = self._threads.call(self._inner.request, message, timeout)
        return reply

    def close(self) -> None:
        """Close the session, and delete the topic of replies."""
        self._threads.call(self._inner.close)
        self._threads.close()
