"""Experiments by plan: a matrix of runs in networks made for the purpose, with results as trace lines.

`plan` reads what is to be measured, `matrix` lays it out as cells, `field` makes the network of a cell, `book` keeps
what is done, and `runner` goes from cell to cell.
"""
