"""`spark-lake`, the command for operators of pipelines.

It may import every room but `meltano`. Start with `spark_lake`; a command is one file in
`commands`.
"""
