"""Tests that every public name has a docstring, and a place in the API reference."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest
from doc_site import Site

griffe = pytest.importorskip("griffe", reason="the extra `docs` is not installed")

if TYPE_CHECKING:
    from griffe import Alias, Object

    Item: TypeAlias = Object | Alias

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "api"
PUBLIC = {
    *("fjm2", "fjm2.errors", "fjm2.uri", "fjm2.jms", "fjm2.jms.blocking", "fjm2.norm", "fjm2.norm.events"),
    *("fjm2.app", "fjm2.app.blocking"),
    *("fjm2.norm.sim", "fjm2.record", "fjm2.metrics", "fjm2.telemetry", "fjm2.watch", "fjm2.doctor"),
}


@pytest.fixture(scope="module")
def package() -> "Object":
    loaded = griffe.load("fjm2", search_paths=[ROOT], resolve_aliases=True)
    assert isinstance(loaded, griffe.Object)
    return loaded


def module_of(package: "Object", name: str) -> "Item":
    return package if name == "fjm2" else package[name.removeprefix("fjm2.")]


def exports_of(package: "Object", name: str) -> Iterator[tuple[str, "Item"]]:
    """Return the names that `from module import *` imports. Without `__all__`, return those the module defines.

    Modules are left out.
    """
    module = module_of(package, name)
    names = module.exports
    for member, item in module.members.items():
        if member in names if names is not None else not (member.startswith("_") or item.is_alias):
            origin = module.imports.get(member)  # not a module of the same name
            found = target_of(item if origin is None else module_of(package, origin))
            if not found.is_module:
                yield f"{name}.{member}", found


def target_of(item: "Item") -> "Item":
    return item.final_target if item.is_alias else item


def members_of(kind: "Item") -> Iterator["Item"]:
    """Return the public members of a class, including those inherited from any class of FJM2."""
    for name, item in kind.all_members.items():
        member = target_of(item)
        if not name.startswith("_") and member.path.startswith("fjm2."):
            yield member


def is_told(member: "Item", kind: "Item") -> bool:
    """Return True if a member is documented.

    A member is documented by its own docstring, or if a docstring of its class names it. A member of an Enum is also
    documented if its value is a sentence.
    """
    if member.docstring:
        return True
    if not member.is_attribute or "property" in member.labels:
        return False
    owners = [one for one in (kind, *kind.mro()) if one.docstring]
    if any(f"`{member.name}`" in owner.docstring.value for owner in owners if owner.docstring):
        return True
    return bool(re.fullmatch(r"['\"].* .*['\"]", str(member.value)))


def test_every_public_name_is_explained(package: "Object") -> None:
    untold = set()
    for name in PUBLIC:
        if not module_of(package, name).docstring:
            untold.add(name)
        for path, item in exports_of(package, name):
            if not item.docstring:
                untold.add(path)
            if item.is_class:
                untold |= {f"{path}: {member.path}" for member in members_of(item) if not is_told(member, item)}
    assert sorted(untold) == []


def test_every_public_name_is_in_the_reference(package: "Object", site: Site) -> None:
    """An object needs to appear under only one of its names.

    Modules export names of others, and classes inherit members.
    """
    shown = set()
    for path, text in site.pages.items():
        if path.startswith("api/"):
            shown |= set(re.findall(r'id="(fjm2[\w.]*)"', text))
    exported = [entry for name in PUBLIC for entry in exports_of(package, name)]
    names: dict[str, set[str]] = {}
    for path, item in exported:
        names.setdefault(item.path, {item.path}).add(path)
        for member in members_of(item) if item.is_class else ():
            names.setdefault(member.path, {member.path}).add(f"{path}.{member.name}")
    assert sorted(original for original, paths in names.items() if not paths & shown) == []


def test_the_reference_has_all_public_modules() -> None:
    pages = [path.read_text() for path in REFERENCE.glob("*.md")]
    assert {name for page in pages for name in re.findall(r"^::: ([\w.]+)$", page, re.MULTILINE)} >= PUBLIC
    overview = (REFERENCE / "index.md").read_text()
    for path in REFERENCE.glob("*.md"):
        title = path.read_text().partition("\n")[0]
        assert path.name == "index.md" or f"`{title[2:].partition(':')[0]}`" in overview, path.name
