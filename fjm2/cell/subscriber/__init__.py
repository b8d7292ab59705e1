"""The subscribers of a connection at its cell, without I/O."""
