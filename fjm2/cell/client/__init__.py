"""The publisher's side of a cell, without I/O."""
