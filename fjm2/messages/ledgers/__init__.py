"""Numbers of frames in ledgers: sections 7 and 8 of frames (docs/frames.md)."""
