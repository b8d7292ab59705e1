"""What the site needs besides Markdown: pages link to files of the repository, which it brings along."""

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
    """Add a file, or the files of a folder and a list of them."""
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
    """Let links that lead out of the folder of pages lead to what was brought along."""

    def moved(link: re.Match[str]) -> str:
        name = _in_repository(page.file, link.group())
        if name is None:
            return link.group()
        place = _on_site(name, (Path(config.docs_dir).parent / name).is_dir())
        return os.path.relpath(place, PurePosixPath(page.file.src_uri).parent)

    if page.file.src_uri.startswith(f"{FOLDER}/"):  # from the top of the repository
        return markdown.replace("](docs/", "](../")
    return _LINK.sub(moved, markdown)


def _in_repository(page: File, link: str) -> str | None:
    """The name of a file outside the folder of pages, from the top; None for what is inside."""
    name = os.path.normpath(PurePosixPath("docs", page.src_uri).parent / link)
    return None if name.startswith("docs/") else name


def _on_site(name: str, is_folder: bool = False) -> str:
    """Its place, by a name that a browser shows."""
    if is_folder:
        return f"{FOLDER}/{name}/index.md"
    return f"{FOLDER}/{name}" if name.endswith(".md") else f"{FOLDER}/{name}.txt"
