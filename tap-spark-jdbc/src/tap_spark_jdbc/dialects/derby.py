"""Apache Derby, whose driver ships with Spark.

Dates and times are read as text, exact to the nanosecond.
"""

import os
from dataclasses import replace

from singer_spark.core.key_value import KeyType
from tap_spark_jdbc.dialects.dialect import Dialect
from tap_spark_jdbc.dialects.templates import LITERALS
from tap_spark_jdbc.dialects.type_rules import STANDARD_RULES, TypeRule

# It can't cast numbers to VARCHAR, nor approximate ones to any text type.
_EXACT, _FLOATING = "RTRIM(CAST({c} AS CHAR(40)))", "RTRIM(CHAR({c}))"
_TEXTS = {"SMALLINT": _EXACT, "INTEGER": _EXACT, "BIGINT": _EXACT, "DECIMAL({p},{s})": _EXACT}
_TEXTS |= {"REAL": _FLOATING, "DOUBLE PRECISION": _FLOATING}

_RULES = (
    *(replace(rule, text=_TEXTS.get(rule.sql_type)) for rule in STANDARD_RULES),
    TypeRule("float", "DOUBLE PRECISION", read_as="DOUBLE", text=_FLOATING),
    TypeRule("date", "DATE", "CAST({c} AS CHAR(10))", cast_text=True),
    TypeRule("time", "TIME", "CAST({c} AS CHAR(8))"),
    TypeRule("timestamp", "TIMESTAMP", "CAST({c} AS VARCHAR(29))", cast_text=True),
    TypeRule(r"long varchar .*for bit data.*|blob.*", "VARBINARY", read_as="BINARY", ordered=False),
    TypeRule(r".*for bit data.*", "VARBINARY", read_as="BINARY"),
    TypeRule(r"char\((?P<p>\d+)\)", "CHAR({p})"),
    TypeRule(r"varchar\((?P<p>\d+)\)", "VARCHAR({p})"),
    # A cast would truncate it.
    TypeRule(r"(?:long varchar|clob).*", "TEXT", text="{c}", ordered=False),
    TypeRule(
        "xml", "TEXT", "XMLSERIALIZE({c} AS CLOB)", text="XMLSERIALIZE({c} AS CLOB)", ordered=False
    ),
)

DERBY = Dialect(
    name="derby",
    url_prefixes=("jdbc:derby:",),
    driver="org.apache.derby.iapi.jdbc.AutoloadedDriver",
    driver_package=None,
    type_rules=_RULES,
    literals=LITERALS
    | {
        KeyType.DATE: "DATE({v})",
        KeyType.DATETIME: "TIMESTAMP({v})",
        KeyType.TIMESTAMP: "TIMESTAMP({v})",
    },
    width="LENGTH({s})",
    text_select="CAST({c} AS VARCHAR(32672))",
    now="CURRENT_TIMESTAMP",
    system_schemas=tuple(
        "SYS SYSCAT SYSCS_DIAG SYSCS_UTIL SYSFUN SYSIBM SYSPROC SYSSTAT NULLID SQLJ".split()
    ),
    # Derby would write its log to the tap's working directory.
    system_properties={"derby.stream.error.file": os.devnull},
)
