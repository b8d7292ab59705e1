"""The cell: keepers that store the frames of a bus and decide together, without I/O."""
