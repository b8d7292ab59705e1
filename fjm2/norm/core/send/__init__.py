"""The sending half of a NORM node."""
