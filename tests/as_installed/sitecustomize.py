"""No pandas: programs under test start like those of a user that installed only what they need.

PySpark imports pandas where it finds it, which takes 0.9 s of CPU time at each start; only Spark
Connect and staging by Spark ask for it, whose tests use the fixture `with_pandas`.
"""

import sys


class NoPandas:
    """Finds that there is no pandas.

    It is not a module that fails, because a thread that imports that meanwhile would get an empty
    module instead of the error.
    """

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Refuse pandas; leave all else to the next finder."""
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=name)


sys.meta_path.insert(0, NoPandas)
