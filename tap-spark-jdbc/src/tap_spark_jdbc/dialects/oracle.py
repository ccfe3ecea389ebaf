"""Oracle 12.2 and newer. Numbers without precision, dates and times are read as text.

Its DATE has a time of day, and its empty string is NULL.
"""

from singer_spark.core.key_value import KeyType
from tap_spark_jdbc.dialects.dialect import Dialect
from tap_spark_jdbc.dialects.templates import LITERALS, Alive
from tap_spark_jdbc.dialects.type_rules import TypeRule

# S marks years before Christ, which are refused; without it they look like others.
_DATE = "LTRIM(TO_CHAR({c}, 'SYYYY-MM-DD HH24:MI:SS'))"
_MOMENT = "LTRIM(TO_CHAR(CAST({c} AS TIMESTAMP(9)), 'SYYYY-MM-DD HH24:MI:SS.FF9'))"
# The zone is part of the format: NULL || '+00:00' would not be NULL here.
_INSTANT = "LTRIM(TO_CHAR({c} AT TIME ZONE 'UTC', 'SYYYY-MM-DD HH24:MI:SS.FF9\"+00:00\"'))"
_NUMBER = "TO_CHAR({c}, 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')"
_LENGTH = r"\((?P<p>\d+)\)"

_RULES = (
    TypeRule(
        r"number\((?P<p>\d+),(?P<s>\d+)\)",
        "DECIMAL({p},{s})",
        read_as="DECIMAL({p},{s})",
        text=_NUMBER,
    ),
    # Without precision, with a negative scale or one above the precision: exact, as text.
    TypeRule(r"number(?:\(.*\))?|float", "NUMERIC", _NUMBER, text=_NUMBER),
    TypeRule("binary_float", "REAL", read_as="FLOAT", text=_NUMBER),
    TypeRule("binary_double", "DOUBLE PRECISION", read_as="DOUBLE", text=_NUMBER),
    TypeRule("boolean", "BOOLEAN", read_as="BOOLEAN"),
    # Compared as a DATE, because otherwise no index of the column is used.
    TypeRule(
        "date",
        "TIMESTAMP",
        _DATE,
        cast_text=True,
        text=_DATE,
        key_literal="CAST(TIMESTAMP {v} AS DATE)",
    ),
    TypeRule(r"timestamp(?:\(\d\))?", "TIMESTAMP", _MOMENT, cast_text=True, text=_MOMENT),
    TypeRule(
        r"timestamp(?:\(\d\))? with (?:local )?time zone",
        "TIMESTAMP WITH TIME ZONE",
        _INSTANT,
        cast_text=True,
        text=_INSTANT,
    ),
    TypeRule("interval .*", "INTERVAL", "TO_CHAR({c})"),
    TypeRule("char" + _LENGTH, "CHAR({p})", text="{c}"),
    TypeRule("varchar2?" + _LENGTH, "VARCHAR({p})", text="{c}"),
    # A plain literal is limited to the database's character set.
    TypeRule(
        "nchar" + _LENGTH, "CHAR({p})", text="{c}", key_literal="CAST(UNISTR({u}) AS NCHAR({p}))"
    ),
    TypeRule("nvarchar2?" + _LENGTH, "VARCHAR({p})", text="{c}", key_literal="UNISTR({u})"),
    TypeRule("rowid|urowid", "TEXT", text="{c}"),
    TypeRule("n?clob|long", "TEXT", text="{c}", ordered=False),
    TypeRule("xmltype|sys.xmltype", "TEXT", "XMLSERIALIZE(CONTENT {c} AS CLOB)", text="{c}"),
    TypeRule(
        "json",
        "JSON",
        "JSON_SERIALIZE({c} RETURNING CLOB)",
        text="JSON_SERIALIZE({c} RETURNING CLOB)",
    ),
    TypeRule("raw", "VARBINARY", read_as="BINARY", text="RAWTOHEX({c})"),
    TypeRule("long raw|blob", "VARBINARY", read_as="BINARY", text="RAWTOHEX({c})", ordered=False),
)

ORACLE = Dialect(
    name="oracle",
    hides_tables=True,
    url_prefixes=("jdbc:oracle:",),
    driver="oracle.jdbc.OracleDriver",
    # Only transactions that have written are listed there.
    open_transactions="SELECT MAX(CEIL((SYSDATE - t.START_DATE) * 86400)) AS age, "
    "FLOOR((CAST(SYS_EXTRACT_UTC(SYSTIMESTAMP) AS DATE) - DATE '1970-01-01') * 86400) AS clock, "
    "MAX(FLOOR((SYSDATE - t.START_DATE) * 86400)) AS written, "
    "CASE WHEN SYS_CONTEXT('USERENV', 'DATABASE_ROLE') LIKE '%STANDBY' THEN 1 ELSE 0 END "
    "AS is_replica FROM V$TRANSACTION t",
    open_transactions_grant="GRANT SELECT ON V_$TRANSACTION TO {user}",
    driver_package="com.oracle.database.jdbc:ojdbc11:23.26.4.0.0",
    type_rules=_RULES,
    literals=LITERALS
    | {
        KeyType.TIMESTAMP: "TO_TIMESTAMP_TZ({v}, 'YYYY-MM-DD HH24:MI:SS.FFTZH:TZM')",
        KeyType.BINARY: "HEXTORAW({v})",
    },
    key_select={
        KeyType.INTEGER: _NUMBER,
        KeyType.DECIMAL: _NUMBER,
        KeyType.DATETIME: _MOMENT,
        KeyType.TIMESTAMP: _INSTANT,
        KeyType.BINARY: "RAWTOHEX({c})",
    },
    text_select="TO_CHAR({c})",
    now="TO_CHAR(SYS_EXTRACT_UTC(SYSTIMESTAMP), 'YYYY-MM-DD HH24:MI:SS.FF6')",
    # APEX has a schema for each of its versions: the digits are the version.
    system_schemas=("APEX_[0-9][0-9][0-9][0-9][0-9][0-9]", "FLOWS_FILES"),
    system_schemas_query="SELECT username FROM all_users WHERE oracle_maintained = 'Y'",
    alive=Alive({"oracle.net.CONNECT_TIMEOUT": "20000", "oracle.jdbc.ReadTimeout": "20000"}),
    # If zones were passed by name, the server would have to know the JVM's.
    properties={"oracle.jdbc.timezoneAsRegion": "false", "oracle.net.CONNECT_TIMEOUT": "30000"},
    # The driver uses the machine's language, by which texts are ordered differently from how they
    # compare.
    session_statements=("ALTER SESSION SET NLS_COMP = BINARY NLS_SORT = BINARY TIME_ZONE = 'UTC'",),
)
