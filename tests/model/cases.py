"""The table of cases: a rule left out, bounds, and the outcome that the search has to find."""

from typing import NamedTuple

from .decisions import Decisions
from .explorer import Model
from .handing import Handing
from .ledgers import Ledgers
from .membership import Bounds, Membership
from .transactions import Transactions

GROWTH = Bounds(members=1, keepers=2, epochs=2, losses=0, changes=("add",), changes_max=1)
"""A cell of one grows to two."""
GROWTH_TWICE = GROWTH._replace(keepers=3, changes_max=2)
"""A cell of one grows to three."""
PAIR = Bounds(members=2, keepers=3, epochs=2, losses=1, changes=("add", "return"), changes_max=1)
"""A cell of two grows to three, or loses a disk and takes the keeper back."""
LOSS = Bounds(members=3, keepers=3, epochs=2, losses=1, changes=("return",), changes_max=1)
"""A cell of three loses a disk and takes the keeper back."""
LOSS_TWICE = LOSS._replace(losses=2, changes_max=2)
"""A cell of three loses a disk, takes the keeper back, and loses another disk."""

REMOVAL = Bounds(members=3, keepers=3, epochs=2, losses=0, changes=("remove",), changes_max=1)
"""A cell of three shrinks to two."""
ADDITION = Bounds(3, 4, epochs=2, losses=0, changes=("add",), changes_max=1, is_stored=True)
"""A cell of three that holds the message grows to four."""
REPLACEMENT = ADDITION._replace(changes=("replace",))
"""A cell of three that holds the message replaces a member by a spare."""


QUICK_STATES = 17_000
"""Most states of a case of `make test`: a second of processor time."""


class Case(NamedTuple):
    """A search with its outcome."""

    name: str
    model: Model
    violated: str | None
    """The property that breaks first, or None if every state is good."""
    steps: int
    """Length of the shortest way to a bad state; 0 if there is none."""
    states: int
    """States visited until then."""

    @property
    def is_quick(self) -> bool:
        """True for a case of `make test`. The others take longer, for `make nightly`."""
        return self.states <= QUICK_STATES


_TABLE = (
    Case("decisions-one-epoch", Decisions("none", 1, 1, False), None, 0, 4_819),
    Case("decisions", Decisions("none", 2, 1, False), None, 0, 75_504),
    Case("decisions-long", Decisions("none", 4, 2, True), None, 0, 205_920),
    Case("decisions-ack-before-fsync", Decisions("ack-before-fsync", 2, 1, False), "S1", 7, 4_608),
    Case("decisions-presence-leads", Decisions("presence-leads", 2, 1, False), "S1", 7, 1_468),
    Case("decisions-no-recovery-read", Decisions("no-recovery-read", 2, 1, False), "S1", 9, 6_856),
    Case("decisions-amnesia", Decisions("amnesia", 2, 1, False), "S1", 10, 23_994),
    Case("decisions-no-fence", Decisions("no-fence", 3, 0, True), "S2", 14, 30_378),
    Case("decisions-no-up-to-date", Decisions("no-up-to-date", 3, 0, True), "S2", 16, 8_902),
    Case("decisions-promise-not-kept", Decisions("promise-not-kept", 2, 1, True), "S2", 18, 28_009),
    Case("decisions-presence-leads-stored", Decisions("presence-leads", 2, 0, True), "S2", 11, 21_688),
    Case("decisions-amnesia-stored", Decisions("amnesia", 2, 1, True), "S2", 18, 23_783),
    Case("decisions-old-epoch-commit", Decisions("old-epoch-commit", 4, 0, True), "S2", 20, 64_231),
    Case("decisions-serve-before-open", Decisions("serve-before-open", 3, 1, True), None, 0, 40_836),
    Case("growth", Membership("none", GROWTH), None, 0, 1_430),
    Case("growth-managers-read-one", Membership("managers-read-one", GROWTH), "S1", 11, 701),
    Case("growth-no-backfill", Membership("no-backfill", GROWTH), "S1", 14, 1_412),
    Case("growth-mute-learner", Membership("mute-learner", GROWTH), "E", 4, 29),
    Case("growth-mute-stranger", Membership("mute-stranger", GROWTH), "E", 4, 29),
    Case("growth-twice", Membership("none", GROWTH_TWICE), None, 0, 150_678),
    Case("growth-twice-overlapping-changes", Membership("overlapping-changes", GROWTH_TWICE), "S1", 13, 22_772),
    Case("growth-twice-change-before-open", Membership("change-before-open", GROWTH_TWICE), None, 0, 151_096),
    Case("pair", Membership("none", PAIR), None, 0, 99_320),
    Case("pair-stored-at-once", Membership("stored-at-once", PAIR), "S1", 14, 35_102),
    Case("pair-lost-ones-block", Membership("lost-ones-block", PAIR), "E", 1, 4),
    Case(
        "pair-overlapping-changes", Membership("overlapping-changes", PAIR._replace(changes_max=2)), "S1", 15, 182_727
    ),
    Case("loss-one-epoch", Membership("none", LOSS._replace(epochs=1)), None, 0, 2_613),
    Case("loss", Membership("none", LOSS), None, 0, 95_081),
    Case("loss-twice", Membership("none", LOSS_TWICE), None, 0, 684_685),
    Case("loss-three-epochs", Membership("none", LOSS._replace(epochs=3)), None, 0, 1_270_826),
    Case("removal", Membership("none", REMOVAL), None, 0, 59_178),
    Case("addition-stored", Membership("none", ADDITION), None, 0, 19_692),
    Case("replacement-stored", Membership("none", REPLACEMENT), None, 0, 34_827),
    Case("loss-managers-read-one", Membership("managers-read-one", LOSS), "S1", 15, 39_059),
    Case("loss-votes-of-one", Membership("votes-of-one", LOSS), "S3", 12, 29_526),
    Case("loss-commit-by-one", Membership("commit-by-one", LOSS), "S3", 11, 16_277),
    Case("loss-return-unnamed", Membership("return-unnamed", LOSS), "S1", 10, 21_592),
    Case("loss-report-before-note", Membership("report-before-note", LOSS), "S1", 17, 67_196),
    Case("loss-no-backfill", Membership("no-backfill", LOSS), "S1", 17, 72_029),
    Case("handing", Handing("none", 2), None, 0, 15_613),
    Case("handing-unowned-acknowledged", Handing("unowned-acknowledged", 2), "S2", 12, 11_335),
    Case("handing-success-at-once", Handing("success-at-once", 2), "S2", 12, 7_767),
    Case("handing-flag-by-record", Handing("flag-by-record", 2), "F", 10, 3_540),
    Case("handing-no-lease", Handing("no-lease", 2), "F", 10, 2_678),
    Case("ledgers-one-epoch", Ledgers("none", 1), None, 0, 3_762),
    Case("ledgers", Ledgers("none", 2), None, 0, 100_804),
    Case("ledgers-close-without-own", Ledgers("close-without-own", 2), "L2", 10, 13_735),
    Case("ledgers-fence-by-message", Ledgers("fence-by-message", 2), "L1", 13, 282_771),
    Case("ledgers-fence-unheeded", Ledgers("fence-unheeded", 2), "L1", 12, 39_483),
    Case("ledgers-confirm-after-fence", Ledgers("confirm-after-fence", 2), "L1", 12, 31_740),
    Case("ledgers-apply-outside", Ledgers("apply-outside", 2), "L2", 13, 48_316),
    Case("ledgers-confirm-without-frames", Ledgers("confirm-without-frames", 2), "L3", 11, 32_813),
    Case("transactions-one-epoch", Transactions("none", 1), None, 0, 1_040),
    Case("transactions", Transactions("none", 2), None, 0, 118_586),
    Case("transactions-apply-without-parts", Transactions("apply-without-parts", 2), "T2", 9, 4_411),
    Case("transactions-confirm-without-frames", Transactions("confirm-without-frames", 2), "T2", 10, 12_113),
    Case("transactions-no-ownership", Transactions("no-ownership", 2), "S2", 10, 12_036),
    Case("transactions-answer-at-once", Transactions("answer-at-once", 2), "T1", 10, 11_162),
    Case("transactions-unknown-unrecorded", Transactions("unknown-unrecorded", 2), "T1", 9, 4_535),
    Case("transactions-outcome-forgotten", Transactions("outcome-forgotten", 2), "T1", 9, 9_050),
)

CASES = {case.name: case for case in _TABLE}
