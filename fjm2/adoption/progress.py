"""The state of an adoption as its folder has it, which is only read."""

from pathlib import Path

from fjm2.outbox.drive.directory import accepted_in

from .plan import LANES, OUTBOX, Part, read_plan
from .survey import Survey


def left_in(folder: Path, survey: Survey) -> int:
    """Return the number of messages of a store that no run has sent yet. Raise ConfigError if the folder is damaged."""
    directory = folder / OUTBOX
    accepted = accepted_in(directory) if directory.exists() else [0] * LANES
    plan = read_plan(folder, survey.cell_id)
    parts = (Part(span.ledger, span.first, span.end) for span in survey.spans)
    return plan.extended(accepted, parts).total - sum(accepted)
