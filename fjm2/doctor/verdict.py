"""What a check comes to: a verdict, a plain sentence, and what to do."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any


class Verdict(Enum):
    """How bad it is."""

    OK = "ok"
    """As it should be."""
    WARNING = "warning"
    """It works, but not well, or not for long."""
    FAULT = "fault"
    """Messages will not arrive."""
    UNKNOWN = "unknown"
    """Could not be looked at, here or by this user."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    """What was looked at, as in "interface"."""
    verdict: Verdict
    """How bad it is."""
    text: str
    """A sentence."""
    problem: str | None = None
    """A stable name of what is wrong, as in "interface_down"."""
    advice: tuple[str, ...] = ()
    """What to do, likeliest first: commands to paste, or sentences."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """The numbers behind the text."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON can say it."""
        return asdict(self) | {"verdict": self.verdict.value, "advice": list(self.advice)}


def ok(check: str, text: str, **figures: Any) -> Finding:
    return Finding(check, Verdict.OK, text, figures=figures)


def unknown(check: str, text: str, *advice: str) -> Finding:
    return Finding(check, Verdict.UNKNOWN, text, advice=advice)


def warning(check: str, problem: str, text: str, *advice: str, **figures: Any) -> Finding:
    return Finding(check, Verdict.WARNING, text, problem, advice, figures)


def fault(check: str, problem: str, text: str, *advice: str, **figures: Any) -> Finding:
    return Finding(check, Verdict.FAULT, text, problem, advice, figures)


def exit_code(findings: Iterable[Finding]) -> int:
    """2 if anything is at fault, 1 if there are warnings, else 0."""
    verdicts = {one.verdict for one in findings}
    return 2 if Verdict.FAULT in verdicts else int(Verdict.WARNING in verdicts)
