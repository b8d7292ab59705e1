"""Plans of experiments: many runs in networks made for them, with results as trace lines.

`plan` reads a plan and `values` checks its values. `matrix` lays it out as cells, and `runner` runs one cell after
another. `result_folder` keeps the results. `machine` describes the machine, and `fec_cost` measures codes.
"""
