"""`spark-lake`, the command for those who run pipelines.

It may import every room but `meltano`. Start with `spark_lake`; a command is one file in `commands`.
"""
