"""The receiving half of a NORM node."""
