"""Gather docs/changes/*.md into the changelog's section of the next version, and remove them."""

import re
import sys
from pathlib import Path
from typing import Final

KINDS: Final = ("added", "changed", "deprecated", "removed", "fixed", "security")
"""Kinds of change, in the order in which Keep a Changelog lists them."""
LINE_CHARACTERS_MAX: Final = 120
_NAME = re.compile(rf"[a-z0-9-]+\.({'|'.join(KINDS)})\.md")
_SECTION = re.compile(r"^## \[", re.MULTILINE)


class ChangeError(Exception):
    """A file that is not named or written as docs/changes/README.md says."""


def changes(folder: Path) -> dict[str, list[str]]:
    """Return the text of every change file, by kind. Raise ChangeError for a file with a wrong name or without text."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.md")):
        if path.name == "README.md":
            continue
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise ChangeError(f"{path}: expected AREA-few-words.KIND.md, with KIND one of {', '.join(KINDS)}")
        text = " ".join(path.read_text().split())
        if not text:
            raise ChangeError(f"{path}: expected a sentence about the change, but the file is empty")
        found.setdefault(match[1], []).append(text)
    return found


def gather(changelog: str, found: dict[str, list[str]]) -> str:
    """Return the changelog with the changes in its first section, breaking changes before others."""
    start = _SECTION.search(changelog)
    if start is None:
        raise ChangeError("the changelog has no section of a version: expected a line that begins with '## ['")
    following = _SECTION.search(changelog, start.end())
    end = following.start() if following else len(changelog)
    section = changelog[start.start() : end].rstrip("\n")
    for kind in KINDS:
        if kind in found:
            section = _add(section, f"### {kind.capitalize()}", found[kind])
    tail = changelog[end:]
    return changelog[: start.start()] + section + "\n" + (f"\n{tail}" if tail else "")


def _add(section: str, heading: str, texts: list[str]) -> str:
    entries = "\n".join(map(_entry, sorted(texts, key=lambda text: not text.startswith("**BREAKING"))))
    parts = re.split(r"\n\n(?=### )", section)
    for place, part in enumerate(parts):
        if part.startswith(heading + "\n"):
            parts[place] = f"{part}\n{entries}"
            return "\n\n".join(parts)
    return f"{section}\n\n{heading}\n\n{entries}"


def _entry(text: str) -> str:
    lines, line = [], "-"
    for word in text.split():
        if len(line) + 1 + len(word) > LINE_CHARACTERS_MAX:
            lines.append(line)
            line = " "
        line += f" {word}"
    return "\n".join([*lines, line])


def main(root: Path) -> None:
    """Gather the change files of a repository into its CHANGELOG.md."""
    folder, path = root / "docs" / "changes", root / "CHANGELOG.md"
    found = changes(folder)
    path.write_text(gather(path.read_text(), found))
    for change in folder.glob("*.md"):
        if change.name != "README.md":
            change.unlink()
    print(f"{sum(map(len, found.values()))} changes gathered into {path.name}")


if __name__ == "__main__":
    try:
        main(Path(__file__).parents[2])
    except ChangeError as error:
        sys.exit(f"Error: {error}")
