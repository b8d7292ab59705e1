"""A keeper: a process that stores what it hears, and decides with the others of its cell."""
