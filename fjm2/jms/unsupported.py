"""What this release does not offer, and why: one table for the exceptions and for the meta data."""

from typing import Final, NoReturn

from fjm2.messages.errors import ResourceAllocationError

NEEDS: Final[dict[str, str]] = {
    "queues": "need a coordinator; temporary queues do not",
    "queue browsers": "need a coordinator",
    "shared subscriptions": "need a coordinator",
    "durable subscriptions": "need a store",
    "shared durable subscriptions": "need a store and a coordinator",
    "delayed delivery": "needs a store",
    "overrides by an administrator": "need a coordinator",
    "domain-specific interfaces": "need queues, and those a coordinator",
}
"""What may come with a later release."""

NEVER: Final[dict[str, str]] = {
    "connection consumers": "are a facility of application servers",
    "XA transactions": "are optional in JMS",
}


def refuse(what: str) -> NoReturn:
    """ResourceAllocationError or, for what will never be there, NotImplementedError."""
    if what in NEVER:
        raise NotImplementedError(f"{what} {NEVER[what]}, and not offered")
    raise ResourceAllocationError(f"{what} {NEEDS[what]}: not in this release")
