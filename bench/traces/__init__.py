"""Traces on Spark: from lines of JSON and packet captures to tables, and from tables to figures (docs/pipeline.md).

`files` finds new parts of files, `lines` reads them, and `clean` turns lines into rows, by `schema`. `ingest` runs
these once, and `stream` continuously; both write to a `warehouse`. `refresh` brings figures up to date: those of
`aggregate`, which uses `measures`, and of `anomalies`. `session` starts Spark, `generate` makes traces for tests, and
`scale` measures how the pipeline grows.
"""
