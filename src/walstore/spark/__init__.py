"""The data pipeline: logs of very many documents, verified and folded on Spark.

- `source` reads events into a DataFrame, batch and streaming; `transforms` and `analytics` are
  functions from DataFrame to DataFrame; `job` writes the same archive as `walstore.archive`.
- What a task does is in `stages` and `parts`, which know nothing of Spark.
- Everything that a task needs is named by address and file; no key is in a plan or a log.
"""
