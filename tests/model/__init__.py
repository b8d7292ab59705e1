"""Exhaustive models of the rules of a cell (docs/decisions/0016-cell-rules.md)."""
