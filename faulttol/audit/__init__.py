"""The audit: the guarantees of any number of runs, checked on Spark.

`session` starts Spark, `job` reads the runs and hands each to `kernel`, which looks for suspects in
`evidence` and asks `faulttol.guarantees` about them; a `verdict` is what comes back.
"""
