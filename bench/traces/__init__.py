"""Traces on Spark: from lines of JSON and packet captures to tables, and from tables to figures (docs/pipeline.md).

`files` finds what is new, `lines` reads it, and `clean` turns lines into rows, by `schema`. `ingest` does so once and
`stream` continuously; both write to a `warehouse`. `refresh` brings figures up to date: `aggregate`, of `measures`, and
`anomalies`. `session` starts Spark, `generate` makes traces for tests, and `scale` measures how the pipeline grows.
"""
