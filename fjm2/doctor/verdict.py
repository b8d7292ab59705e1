"""The result of a check: a verdict, a sentence, and what to do."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any


class Verdict(Enum):
    """Severity of a finding."""

    OK = "ok"
    """Nothing is wrong."""
    WARNING = "warning"
    """The bus works, but not well, or not for long."""
    FAULT = "fault"
    """Messages will not arrive."""
    UNKNOWN = "unknown"
    """The check is not possible on this system, or not allowed to this user."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check."""

    check: str
    """Name of the check, such as "interface"."""
    verdict: Verdict
    """Severity of the finding."""
    text: str
    """The finding, in a sentence."""
    problem: str | None = None
    """Stable name of the problem, such as "interface_down"."""
    advice: tuple[str, ...] = ()
    """Remedies, the likeliest first: commands to paste, or sentences."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Numbers that the text is based on, by name."""

    def as_dict(self) -> dict[str, Any]:
        """Return a dict that `json.dumps` accepts."""
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
    """Return 2 if there is a fault, 1 if there is a warning, otherwise 0."""
    verdicts = {one.verdict for one in findings}
    return 2 if Verdict.FAULT in verdicts else int(Verdict.WARNING in verdicts)
