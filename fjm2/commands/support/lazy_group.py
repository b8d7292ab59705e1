"""Commands that are imported on first use, so that none waits for the imports of the others."""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module

import click

from fjm2.base.interrupts import importing


class LazyCommands(MutableMapping[str, click.Command]):
    """Mapping from names to commands. A command is imported from its module, where it has the same name, on first
    use."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._found: dict[str, click.Command | str] = dict(modules)

    def __getitem__(self, name: str) -> click.Command:
        found = self._found[name]
        if isinstance(found, str):
            with importing():
                command: click.Command = getattr(import_module(found), name)
            self._found[name] = found = command
        return found

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._found[name] = command

    def __delitem__(self, name: str) -> None:
        del self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)
