"""No pandas: programs under test start as those of a user do who installed what they need.

PySpark imports pandas where it finds it, which takes 0.9 s of CPU time at each start; only Spark Connect and staging by
Spark ask for it, whose tests use the fixture `with_pandas`.
"""

raise ModuleNotFoundError("No module named 'pandas'", name="pandas")
