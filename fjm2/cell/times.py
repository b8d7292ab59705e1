"""Times of a cell. A takeover has to be over 3 s after the last heartbeat, and each of these is a part of that."""

from typing import Final

HEARTBEAT_S: Final = 0.15
"""Interval of heartbeats: five in a suspicion."""
TELL_S: Final = 0.01
"""Shortest time between two heartbeats. One that is not due tells clients what was just committed."""
LEASE_S: Final = 0.6
"""Time from the sending of a heartbeat for which its answers let a manager go on: 150 ms less than the suspicion, for
clock rates and scheduling."""
SUSPICION_S: Final = 0.75
"""Silence after which followers look for a new manager: a quarter of the 3 s that a takeover may take."""
NO_VOTE_S: Final = SUSPICION_S
"""Time after a heartbeat, or after the start, in which a member gives no vote: it may have renewed a manager."""
RANK_DELAY_S: Final = HEARTBEAT_S
"""Delay of a candidate for each member that is closer to the bus: one heartbeat separates candidates."""
YIELD_AFTER_S: Final = 1.0
"""Time for which a new manager tries to get what others have, and has no room for it. Its log reaches the others
meanwhile, so that one of them can be elected."""
YIELD_S: Final = 3.0
"""Time for which it lets others come first: two elections."""
LATE_S: Final = 0.1
"""Lateness of a call by which a member knows that its own process was held up: it has not heard yet what others sent
meanwhile, so that their silence proves nothing."""
PAUSE_S: Final = LEASE_S
"""Time for which a manager that lost its lease asks for it again, without serving. Elections take longer than that."""
RETRY_S: Final = 0.15
"""Shortest time after which a candidate asks again. A random time of the same length is added."""
CLAIMS_S: Final = 0.5
"""Time that clients have to claim messages: they answer OPEN in one turn, the rest is for busy loops."""
SESSION_LEASE_S: Final = 3.0
"""Silence after which a client's session ends: longer than a takeover. Clients renew it each second."""
FOUNDING_S: Final = 3.0
"""Time for which a keeper listens before it founds a cell, and for which candidates have to be the same: longer than a
takeover."""
HERE_S: Final = 0.5
"""Interval of the messages of a founding."""
SILENT_S: Final = 60.0
"""Silence of a writer after which its ledgers are closed: longer than a restart."""
DOUBT_S: Final = 10.0
"""Time after which a ledger is closed in which nobody can tell what is missing: as long as its writer waits, if nothing
else is set, and longer than many a restart."""
REMEMBERED_MS: Final = 7 * 24 * 3600 * 1000
"""Time for which the final set of a closed ledger is kept: longer than a retry may be late."""
