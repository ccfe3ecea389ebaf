"""Db2 for Linux, UNIX and Windows. Dates and times are read as text, exact to the picosecond."""

from singer_spark.core.key_value import KeyType
from tap_spark_jdbc.dialects.dialect import Dialect
from tap_spark_jdbc.dialects.templates import LITERALS, Alive
from tap_spark_jdbc.dialects.type_rules import STANDARD_RULES, TypeRule

_TEXT = "CAST({c} AS VARCHAR(32672))"
_DATE = "VARCHAR_FORMAT({c}, 'YYYY-MM-DD')"
_MOMENT = "VARCHAR_FORMAT({c}, 'YYYY-MM-DD HH24:MI:SS.FF12')"
_LENGTH = r"\((?P<p>\d+)\)"

_RULES = (
    *STANDARD_RULES,
    # Including NaN and infinities.
    TypeRule("decfloat.*", "NUMERIC", "CAST({c} AS VARCHAR(64))"),
    TypeRule("float", "DOUBLE PRECISION", read_as="DOUBLE"),
    TypeRule("date", "DATE", _DATE, cast_text=True, text=_DATE),
    TypeRule("time", "TIME", "CHAR({c}, JIS)", text="CHAR({c}, JIS)"),
    TypeRule(r"timestamp(?:\(\d+\))?", "TIMESTAMP", _MOMENT, cast_text=True, text=_MOMENT),
    TypeRule(
        r"long varchar .*for bit data|blob.*",
        "VARBINARY",
        read_as="BINARY",
        text="HEX({c})",
        ordered=False,
    ),
    TypeRule(
        r"(?:char\(\d+\)|varchar\(\d+\)|char|varchar|long varchar) .*for bit data",
        "VARBINARY",
        read_as="BINARY",
    ),
    TypeRule(r"(?:char|character|graphic)" + _LENGTH, "CHAR({p})"),
    TypeRule(r"(?:varchar|character varying|vargraphic)" + _LENGTH, "VARCHAR({p})"),
    # A cast would truncate it.
    TypeRule("(?:long varchar|long vargraphic|clob|dbclob).*", "TEXT", text="{c}", ordered=False),
    TypeRule("(?:varchar|vargraphic|graphic).*", "TEXT"),
    TypeRule("(?:binary|varbinary).*", "VARBINARY", read_as="BINARY", text="HEX({c})"),
    TypeRule(
        "xml", "TEXT", "XMLSERIALIZE({c} AS CLOB)", text="XMLSERIALIZE({c} AS CLOB)", ordered=False
    ),
)

DB2 = Dialect(
    name="db2",
    url_prefixes=("jdbc:db2:",),
    driver="com.ibm.db2.jcc.DB2Driver",
    driver_package="com.ibm.db2:jcc:12.1.5.0",
    type_rules=_RULES,
    literals=LITERALS
    | {
        KeyType.DATE: "DATE({v})",
        KeyType.DATETIME: "TIMESTAMP({v}, 12)",
        KeyType.TIMESTAMP: "TIMESTAMP({w}, 12)",
    },
    key_select={KeyType.DATE: _DATE, KeyType.DATETIME: _MOMENT, KeyType.BINARY: "HEX({c})"},
    text_select=_TEXT,
    now="VARCHAR_FORMAT(CURRENT TIMESTAMP - CURRENT TIMEZONE, 'YYYY-MM-DD HH24:MI:SS.FF6')",
    system_schemas=tuple(
        "SYSCAT SYSFUN SYSIBM SYSIBMADM SYSIBMINTERNAL SYSIBMTS SYSPROC SYSPUBLIC SYSSTAT SYSTOOLS "
        "DB2QP NULLID SQLJ ERRSCHEMA DB2GSE".split()
    ),
    alive=Alive({"loginTimeout": "20", "blockingReadConnectionTimeout": "20"}),
    properties={"clientProgramName": "tap-spark-jdbc", "loginTimeout": "30"},
)
