"""Code blocks of README.md, CHANGELOG.md and docs/, and the command lines in them."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]

_FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<language>[^\s{]*)(?P<more>.*)")
_TITLE = re.compile(r'title="([^"]+)"')


class Block(NamedTuple):
    """A code block of a page, and its place on the page."""

    page: str
    section: str
    """Nearest heading of first or second level above the block; the page's file name if there is none."""
    line: int
    language: str
    title: str
    """Name of the file that the reader saves the block as, or ""."""
    code: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


class Line(NamedTuple):
    """A command line of a page, and the block that contains it."""

    block: Block
    text: str


def blocks_of(page: Path) -> Iterator[Block]:
    """Return the fenced code blocks of a page, in order."""
    name = page.relative_to(ROOT).as_posix()
    section, fence, code = page.stem, "", list[str]()
    opened: tuple[int, str, str] = (0, "", "")
    for number, line in enumerate(page.read_text().splitlines(), 1):
        match = _FENCE.fullmatch(line)
        if fence and match and match["fence"].startswith(fence) and not match["language"]:
            text = textwrap.dedent("\n".join(code)) + "\n"
            yield Block(name, section, *opened, text)
            fence = ""
        elif fence:
            code.append(line)
        elif match:
            fence, code = match["fence"], []
            title = _TITLE.search(match["more"])
            opened = number, match["language"], title[1] if title else ""
        elif heading := re.fullmatch(r"##? (.*)", line):
            section = heading[1]
    assert not fence, f"{name}: a block without an end"


def lines_of(block: Block) -> Iterator[Line]:
    """Return the commands of a shell block. Lines that end with a backslash are joined with the next.

    In a block of language `console`, a command is a line that begins with the prompt `$` or, for root, `#`.
    """
    text = block.code.replace("\\\n", " ")
    for line in text.splitlines():
        if block.language == "console":
            line = line[2:] if line.startswith(("$ ", "# ")) else ""
        if line.strip() and not line.lstrip().startswith("#"):
            yield Line(block, line.strip())


def indented_code(page: Path) -> Iterator[str]:
    """Return lines that Markdown shows as code only because they are indented."""
    before, is_fenced, is_listed = "", False, False
    for line in page.read_text().splitlines():
        if _FENCE.fullmatch(line):
            is_fenced = not is_fenced
        elif not is_fenced:
            if re.match(r"(- |\* |\d+\. )", line):
                is_listed = True
            elif line and not line.startswith(" "):
                is_listed = False
            if line.startswith("    ") and not before.strip() and not is_listed:
                yield line
        before = line


BLOCKS = [block for page in PAGES for block in blocks_of(page)]
