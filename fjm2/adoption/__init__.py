"""Adoption: what a stranded or retired store holds and nobody acknowledged goes into the cell of today, once."""
