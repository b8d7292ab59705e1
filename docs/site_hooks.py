"""Hooks that add the repository files that pages link to, so that the links work on the site."""

import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

FOLDER = "repository"
_LINK = re.compile(r"(?<=\]\()(?:\.\./)+[^)#\s]+")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files that pages link to."""
    for page in files.documentation_pages():
        for link in _LINK.findall(page.content_string):
            name = _in_repository(page, link)
            if name is not None:
                _bring(files, config, Path(config.docs_dir).parent / name, name)
    return files


def _bring(files: Files, config: MkDocsConfig, path: Path, name: str) -> None:
    """Add a file to the site. For a folder, add its files and a page that lists them."""
    place = _on_site(name, path.is_dir())
    if files.get_file_from_path(place) is not None or not path.exists():
        return
    if not path.is_dir():
        files.append(File.generated(config, place, abs_src_path=str(path)))
        return
    inside = [one for one in sorted(path.iterdir()) if one.is_file()]
    for one in inside:
        _bring(files, config, one, f"{name}/{one.name}")
    lines = [f"- [{one.name}]({PurePosixPath(_on_site(one.name)).relative_to(FOLDER)})" for one in inside]
    files.append(File.generated(config, place, content="\n".join([f"# {name}", "", *lines, ""])))


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Rewrite links to files outside `docs/` so that they lead to the copies on the site."""

    def moved(link: re.Match[str]) -> str:
        name = _in_repository(page.file, link.group())
        if name is None:
            return link.group()
        place = _on_site(name, (Path(config.docs_dir).parent / name).is_dir())
        return os.path.relpath(place, PurePosixPath(page.file.src_uri).parent)

    if page.file.src_uri.startswith(f"{FOLDER}/"):  # written relative to the root of the repository
        return markdown.replace("](docs/", "](../")
    return _LINK.sub(moved, markdown)


def _in_repository(page: File, link: str) -> str | None:
    """Return the linked path relative to the repository root, or None if it is inside `docs/`."""
    name = os.path.normpath(PurePosixPath("docs", page.src_uri).parent / link)
    return None if name.startswith("docs/") else name


def _on_site(name: str, is_folder: bool = False) -> str:
    """Return the path on the site, with an extension that browsers display."""
    if is_folder:
        return f"{FOLDER}/{name}/index.md"
    return f"{FOLDER}/{name}" if name.endswith(".md") else f"{FOLDER}/{name}.txt"
