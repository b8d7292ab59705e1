"""The state that decisions have left, as one entry in place of all entries before it."""
