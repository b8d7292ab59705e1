"""Tests of the change files: their names are as docs/changes/README.md says, and the changelog collects them."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def gathering() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gather_changes", ROOT / "docs" / "changes" / "gather.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_change_file_is_well_formed(gathering: ModuleType) -> None:
    gathering.changes(ROOT / "docs" / "changes")


def test_changes_join_the_section_of_the_next_version(gathering: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "changes"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("stays")
    (folder / "bus-full.fixed.md").write_text("A full subscriber\nis waited for.\n")
    (folder / "uri-names.changed.md").write_text("**BREAKING:** another name.")
    (folder / "zebra.changed.md").write_text("Something else.")
    (tmp_path / "CHANGELOG.md").write_text(
        "# Log\n\n## [0.2.0] - unreleased\n\n### Changed\n\n- Old.\n\n## [0.1.0] - then\n\n- First.\n"
    )
    gathering.main(tmp_path)
    assert (tmp_path / "CHANGELOG.md").read_text() == (
        "# Log\n\n## [0.2.0] - unreleased\n\n"
        "### Changed\n\n- Old.\n- **BREAKING:** another name.\n- Something else.\n\n"
        "### Fixed\n\n- A full subscriber is waited for.\n\n## [0.1.0] - then\n\n- First.\n"
    )
    assert [path.name for path in folder.iterdir()] == ["README.md"]


def test_long_changes_are_wrapped(gathering: ModuleType) -> None:
    log = gathering.gather("## [1] - x\n", {"added": ["word " * 60]})
    assert max(map(len, log.splitlines())) <= gathering.LINE_CHARACTERS_MAX
    assert log.count("word") == 60


@pytest.mark.parametrize(
    ("name", "text"), [("bus.mended.md", "x"), ("Bus full.fixed.md", "x"), ("bus.fixed.md", " \n")]
)
def test_a_wrong_file_is_refused(gathering: ModuleType, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(gathering.ChangeError, match=r"expected"):
        gathering.changes(tmp_path)
