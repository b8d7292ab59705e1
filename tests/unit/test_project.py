"""Tests that the project's addresses stand in the files that show them, as project.toml has them.

`make project`, or `python tests/unit/test_project.py`, writes them.
"""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FACTS: dict[str, str] = tomllib.loads((ROOT / "project.toml").read_text())
NAMES = {"url", "clone", "issues", "troubleshooting", "security", "index"}


def blocks() -> dict[str, str]:
    """Return the text of the marked block of each file, by the name of the file."""
    clone, url, index = f"`git clone {FACTS['clone']}`", FACTS["url"], FACTS["index"]
    issues, security = FACTS["issues"], FACTS["security"]
    where = f"Get the source with {clone}, or install a release with `pip install fjm2` ({index})."
    if not index:
        where = f"Get the source with {clone}. No package index has FJM2, so install it from there."
    report = (
        f"Report a vulnerability to {security}, and not in public, so that it can be fixed before it is used.\n"
        "Say what you did, what happened, and which version (`fjm2 --version`) it was."
    )
    return {
        "README.md": (
            f"Project: {url}. Source: {clone}. Problems and questions: {issues}.\n"
            f"Vulnerabilities: {security} ([SECURITY.md](SECURITY.md))."
        ),
        "SECURITY.md": report,
        "docs/install.md": where,
        "docs/security.md": report,
        "setup.cfg": (
            f"url = {url}\n"
            "project_urls =\n"
            f"    Source = {FACTS['clone']}\n"
            f"    Issues = {issues}\n"
            f"    Security = {_as_url(security)}"
        ),
        "mkdocs.yml": f"repo_url: {url}",
        "fjm2/bus/losses/names.py": f'PAGE: Final = "{FACTS["troubleshooting"]}"',
    }


def _as_url(address: str) -> str:
    return f"mailto:{address}" if "@" in address and "://" not in address else address


def marked(name: str) -> re.Pattern[str]:
    """Return a pattern for the marked block of a file: its first group is the text."""
    begin, end = "project: begin (make project)", "project: end"
    if name.endswith(".md"):
        return re.compile(rf"<!-- {re.escape(begin)} -->\n(.*?)\n<!-- {end} -->", re.DOTALL)
    return re.compile(rf"# {re.escape(begin)}\n(.*?)\n# {end}", re.DOTALL)


def write() -> None:
    """Write the facts into all files."""
    for name, text in blocks().items():
        path = ROOT / name
        content, pattern = path.read_text(), marked(name)
        found = pattern.search(content)
        assert found, f"{name}: the marks are missing"
        path.write_text(content[: found.start(1)] + text + content[found.end(1) :])


def test_the_facts_are_complete() -> None:
    assert set(FACTS) == NAMES
    assert all(FACTS[name] for name in NAMES - {"index"})
    for name in ("url", "clone", "issues", "troubleshooting"):
        assert re.fullmatch(r"(https|ssh)://[^\s<>]+", FACTS[name]), f"project.toml: {name}: expected https://..."


@pytest.mark.parametrize("name", blocks())
def test_files_show_the_facts(name: str) -> None:
    found = marked(name).search((ROOT / name).read_text())
    assert found, f"{name}: the marks are missing"
    assert found[1] == blocks()[name], "run `make project`"


def test_no_other_file_has_an_address_of_the_project() -> None:
    facts = {FACTS[name] for name in ("url", "clone", "issues", "security")}
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "setup.cfg", ROOT / "mkdocs.yml"]:
        name = str(path.relative_to(ROOT))
        content = path.read_text()
        if name in blocks():
            content = marked(name).sub("", content)
        assert not [fact for fact in facts if fact in content], f"{name}: take it from project.toml"


def test_nobody_is_told_to_install_from_an_index_that_lacks_it() -> None:
    """A package of this name on a public index would be somebody else's."""
    if FACTS["index"]:
        pytest.skip("there is an index")
    wrong = re.compile(r"pip3? install (?:-\S+ )*['\"]?fjm2(?:\[|['\"`\s]|$)", re.MULTILINE)
    sources = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/changes/*.md")]
    for folder in ("fjm2", "fjm2d", "fjm2admin", "bench", "examples"):
        sources += (ROOT / folder).rglob("*.py")
    assert [str(path.relative_to(ROOT)) for path in sources if wrong.search(path.read_text())] == []


if __name__ == "__main__":
    write()
