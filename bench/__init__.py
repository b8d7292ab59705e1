"""Benchmarks of FJM2 beside other systems, experiments by plan, and the pipeline from traces to a report.

`commands` holds the commands of `fjm2-bench`. They publish the messages of `workload` through FJM2's own APIs
(`layers`) or other systems (`peers`), in networks made of namespaces (`networks`). `comparison` runs one system at a
time, `runs` carries out plans of many runs, and `micro` times single functions. `traces` turns recorded traces into
tables on Spark, and `report` turns the tables into plots.
"""
