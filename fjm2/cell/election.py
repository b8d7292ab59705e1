"""Elections: a candidate's pre-votes and votes, and the votes that a member gives."""

from .configuration import EPOCH_LEAP_MAX, EPOCH_MAX
from .context import Context
from .outgoing import SendCommand
from .replica import Replica
from .times import HEARTBEAT_S, LATE_S, NO_VOTE_S, RANK_DELAY_S, RETRY_S, SUSPICION_S, YIELD_S
from .wire.commands import VoteAnswer, VoteFlag, VoteRequest
from .wire.fields import Member

NEVER = float("inf")
_ASKS_MAX = 4
"""Times that a candidate asks for the votes of one epoch. Requests get lost, and voters may be busy."""
_VOTED_S = 3 * RETRY_S
"""Time after a vote in which a member lets nobody else begin an election: its candidate needs other votes, too."""


def is_plausible(epoch: int, promised: int) -> bool:
    """Return True if an epoch is newer than the promised one, and not so much newer that it must be forged."""
    return promised < epoch <= min(EPOCH_MAX, promised + EPOCH_LEAP_MAX)


class Election:
    """One member's part in elections, as a candidate and as a voter."""

    def __init__(self, context: Context, replica: Replica, now: float) -> None:
        self._context = context
        self._replica = replica
        self._quiet_until = now + NO_VOTE_S
        """Time until which no vote is given. A member that restarts may have renewed a manager before."""
        # Nobody else can be the manager of a cell of one, whose store this process has locked.
        is_alone = replica.log.membership.size == 1 and context.me in replica.log.membership
        self._asks_at = now if is_alone else now + SUSPICION_S
        self._yields_until = now
        self._is_ranked = False
        self._is_excused = False
        """True if the member found during this silence that it was held up itself."""
        self._asks_left = 0
        self.epoch = 0
        """Epoch that the member is a candidate for; 0 if it is none."""
        self._is_pre_vote = True
        self._votes: set[Member] = set()
        self._owed: VoteRequest | None = None
        """Request whose vote is on its way to the disk."""

    @property
    def next_at(self) -> float:
        """Time at which the member becomes a candidate, or asks again."""
        return max(self._asks_at, self._yields_until)

    @property
    def is_candidate(self) -> bool:
        return bool(self.epoch)

    def hear_manager(self, now: float) -> None:
        """Stop being a candidate, and give no vote for a while."""
        self._quiet_until = now + NO_VOTE_S
        self._asks_at = now + SUSPICION_S
        self._is_ranked = self._is_excused = False
        self.epoch = 0

    def withdraw(self, now: float) -> None:
        """Stop being a candidate, because a higher epoch was heard."""
        self.epoch = 0
        self._asks_at = now + RETRY_S * (1 + self._context.random.random())

    def yield_to_others(self, now: float) -> None:
        """Stop being the manager, and let others come first, whatever they do meanwhile."""
        self.epoch = 0
        self._yields_until = self._asks_at = now + YIELD_S

    def handle_timeout(self, now: float) -> None:
        """Ask for pre-votes once the manager has been silent for too long."""
        if now < self.next_at:
            return
        membership = self._replica.log.membership
        if now - self.next_at > LATE_S and not self._is_excused and membership.size > 1:
            # The process was held up. What came meanwhile is taken first.
            self._is_excused = True
            self._asks_at = now + HEARTBEAT_S
            return
        if self.epoch and not self._is_pre_vote and self._asks_left:
            self._asks_left -= 1
            self._asks_at = now + RETRY_S * (1 + self._context.random.random())
            if self._votes:
                self._request()
            return
        if self._context.me not in membership or self._replica.promise.epoch >= EPOCH_MAX or self._replica.is_stuck:
            self._asks_at = now + SUSPICION_S
            return
        if not self._is_ranked:
            self._is_ranked = True
            delay = RANK_DELAY_S * membership.rank(self._context.me.keeper_id, self._context.bus_key)
            if delay:
                self._asks_at = now + delay
                return
        # A candidate that got no majority begins anew, after a random time that separates it from others.
        self.epoch = self._replica.promise.epoch + 1
        self._is_pre_vote = True
        self._votes = {self._context.me}
        self._asks_at = now + RETRY_S * (1 + self._context.random.random())
        self._request()

    def _request(self) -> None:
        log, context = self._replica.log, self._context
        request = VoteRequest(
            flags=VoteFlag.PRE_VOTE if self._is_pre_vote else 0,
            epoch=self.epoch,
            cell_id=context.cell_id,
            candidate=context.me.keeper_id,
            configuration=log.membership.number,
            last_epoch=log.last_epoch,
            last_index=log.last_index,
        )
        context.outgoing.append(SendCommand(request))

    def check_pre_votes(self, now: float) -> None:
        """Promise the epoch to oneself once W members would vote. The vote is asked for when that is on disk."""
        if self.epoch and self._is_pre_vote and self._replica.log.membership.has_majority(self._votes):
            self._is_pre_vote = False
            self._votes = set()
            if self._replica.store_promise(self.epoch, self._context.me.keeper_id):
                self._asks_at = now + RETRY_S * (1 + self._context.random.random())
                self._asks_left = _ASKS_MAX - 1
                self._quiet_until = max(self._quiet_until, now + _VOTED_S)
            else:
                self.withdraw(now)

    def handle_synced(self) -> None:
        """Ask for votes, or give the vote, that is on disk now."""
        promised = self._replica.promised_on_disk
        if self.epoch and not self._is_pre_vote and promised == self.epoch and not self._votes:
            self._votes = {self._context.me}
            self._request()
        owed = self._owed
        if owed is not None and promised >= owed.epoch:
            self._owed = None
            if self._replica.promise == (owed.epoch, owed.candidate):
                self._answer(owed, is_granted=True)

    @property
    def is_elected(self) -> bool:
        """True if W members have given their votes."""
        return bool(self.epoch) and not self._is_pre_vote and self._replica.log.membership.has_majority(self._votes)

    def receive_request(self, request: VoteRequest, now: float, *, is_managing: bool) -> None:
        """Answer a candidate. A vote is answered only when it is on disk."""
        if request.candidate == self._context.me.keeper_id:
            return
        promise = self._replica.promise
        is_quiet = now < self._quiet_until or is_managing
        is_behind = (request.last_epoch, request.last_index) < (
            self._replica.log.last_epoch,
            self._replica.log.last_index,
        )
        may_vote = not is_quiet and not is_behind
        if request.flags & VoteFlag.PRE_VOTE:
            self._answer(request, is_granted=may_vote and request.epoch > promise.epoch)
        elif (request.epoch, request.candidate) == promise:
            if self._replica.promised_on_disk >= request.epoch:
                self._answer(request, is_granted=True)
        elif may_vote and is_plausible(request.epoch, promise.epoch):
            if self._replica.store_promise(request.epoch, request.candidate):
                self.withdraw(now)
                self._asks_at = now + SUSPICION_S
                self._quiet_until = now + _VOTED_S
                self._owed = request
        else:
            self._answer(request, is_granted=False)

    def _answer(self, request: VoteRequest, *, is_granted: bool) -> None:
        log = self._replica.log
        answer = VoteAnswer(
            flags=request.flags | (VoteFlag.GRANTED if is_granted else 0),
            epoch=request.epoch if is_granted else self._replica.promised_on_disk,
            cell_id=self._context.cell_id,
            candidate=request.candidate,
            configuration=log.membership.number,
            last_epoch=log.last_epoch,
            last_index=log.last_index,
            voter=self._context.me,
        )
        self._context.outgoing.append(SendCommand(answer))

    def receive_answer(self, answer: VoteAnswer, now: float) -> None:
        """Count a vote. Votes count by keeper and incarnation, so that a lost store's promise is no other's."""
        if answer.candidate != self._context.me.keeper_id or not self.epoch:
            return
        is_pre_vote = bool(answer.flags & VoteFlag.PRE_VOTE)
        if not answer.flags & VoteFlag.GRANTED and not is_pre_vote and answer.epoch >= self.epoch:
            self._asks_left = 0  # that one has voted for another candidate
        if not answer.flags & VoteFlag.GRANTED or answer.epoch != self.epoch or is_pre_vote != self._is_pre_vote:
            return
        if self._votes:  # before, one's own vote is not on disk
            self._votes.add(answer.voter)
        if is_pre_vote:
            self.check_pre_votes(now)
