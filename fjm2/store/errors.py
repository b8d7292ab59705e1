"""Errors of opening a store, by what has to be done about them."""

from fjm2.base.errors import ConfigError


class StoreInUseError(ConfigError):
    """A store that another process has open."""


class WrongOwnerError(ConfigError):
    """A directory or file of a store that belongs to another user, or that others may change."""


class NewerFormatError(ConfigError):
    """A store that a newer version of this program has written."""


class NoRoomError(ConfigError):
    """A disk that has no room for what opening a store has to write."""
