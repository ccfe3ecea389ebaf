"""MariaDB and MySQL, both with MariaDB's driver, or with MySQL's own.

Over JDBC, dates and times are read as text, so that values without a lake type (zero dates, the
31st of February) can be refused. ConnectorX reads them as numbers, and panics on such a value; then
JDBC reads the rows, and refuses the value.
"""

from dataclasses import replace

from singer_spark.core.key_value import KeyType
from tap_spark_jdbc.dialects.dialect import CONNECTORX, Dialect
from tap_spark_jdbc.dialects.templates import (
    LIMIT,
    LITERALS,
    MARKED_ROW,
    Alive,
    CatalogQueries,
    Checksums,
    Marks,
)
from tap_spark_jdbc.dialects.type_rules import TypeRule

_TEXT = "CAST({c} AS CHAR)"
# Without this a float is printed with six digits, and a number with a declared scale with that
# scale.
_NUMBER = "{c} * 1e0"
# Through JSON, because MySQL otherwise cuts the text of a number to 22 characters. In JSON, MySQL
# writes 5.0 and MariaDB writes 5.
_NUMBER_TEXT = (
    f"CASE WHEN {{c}} IS NOT NULL THEN TRIM(TRAILING '.0' FROM "
    f"JSON_UNQUOTE(JSON_EXTRACT(JSON_ARRAY({_NUMBER}), '$[0]'))) END"
)
# Without the leading zeros of a `zerofill`.
_WHOLE = "CAST({c} + 0 AS CHAR)"
_MOMENT = (
    f"CASE WHEN {_TEXT} LIKE '%.%' THEN TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM "
    f"{_TEXT})) ELSE {_TEXT} END"
)
_BITS = "LPAD(BIN({c}), {p}, '0')"
_SHAPE = (
    "CONCAT(CASE ST_SRID({c}) WHEN 0 THEN '' ELSE CONCAT('SRID=', ST_SRID({c}), ';') END, "
    "ST_AsText({c}))"
)
# A vector is read as bytes, because the server's own text of it has only six digits of each number.
# Four bytes make a number, the lowest first: its sign, its exponent and its fraction, from which a
# double is computed exactly.
_VECTOR = (
    "transform(transform(sequence(0, CAST(length({c}) DIV 8 - 1 AS INT)), n -> "
    "CAST(conv(concat(substr({c}, 8 * n + 7, 2), substr({c}, 8 * n + 5, 2), substr({c}, 8 * n + 3, "
    "2), substr({c}, 8 * n + 1, 2)), 16, 10) AS BIGINT)), b -> CAST(IF(b < 2147483648, 1D, -1D) * "
    "CASE shiftright(b, 23) & 255 WHEN 0 THEN (b & 8388607) * pow(2D, -149) WHEN 255 THEN IF(b & "
    "8388607 = 0, double('Infinity'), double('NaN')) ELSE (1D + (b & 8388607) / 8388608D) * "
    "pow(2D, (shiftright(b, 23) & 255) - 127) END AS FLOAT))"
)
_DIGITS = r"(\(\d+\))?"
# A suffix of dates and times in the storage format of older versions: `datetime /* mariadb-5.3 */`.
_STORED = r"(\(\d\))?( /\*[^*]*\*/)?"
_UNSIGNED = r" unsigned( zerofill)?"
_DECIMAL = r"decimal\((?P<p>\d+),(?P<s>\d+)\)( unsigned)?( zerofill)?"

_UNKNOWN = (
    "a type not known here is read as the server's text of it; if it refuses that, set its "
    "type_overrides to binary"
)

_RULES = (
    # A BOOLEAN of these databases is a tinyint(1), which holds -128 to 127.
    TypeRule(f"tinyint{_DIGITS}", "TINYINT", read_as="TINYINT", checked=_WHOLE),
    TypeRule(
        f"tinyint{_DIGITS}{_UNSIGNED}|smallint{_DIGITS}",
        "SMALLINT",
        read_as="SMALLINT",
        checked=_WHOLE,
    ),
    TypeRule(
        f"smallint{_DIGITS}{_UNSIGNED}|(?:mediumint|int){_DIGITS}",
        "INTEGER",
        read_as="INT",
        checked=_WHOLE,
    ),
    TypeRule(f"mediumint{_DIGITS}{_UNSIGNED}", "INTEGER", read_as="INT", checked=_WHOLE),
    TypeRule(
        f"int{_DIGITS}{_UNSIGNED}|bigint{_DIGITS}", "BIGINT", read_as="BIGINT", checked=_WHOLE
    ),
    TypeRule(
        f"bigint{_DIGITS}{_UNSIGNED}", "DECIMAL(20,0)", read_as="DECIMAL(20,0)", checked=_WHOLE
    ),
    TypeRule(f"year{_DIGITS}", "SMALLINT", "{c} + 0", "SMALLINT", checked=_WHOLE),
    TypeRule(
        _DECIMAL, "DECIMAL({p},{s})", read_as="DECIMAL({p},{s})", columnar=_TEXT, checked=_WHOLE
    ),
    TypeRule(_DECIMAL, "NUMERIC", _TEXT),
    TypeRule(
        "float.*",
        "REAL",
        _NUMBER,
        "DOUBLE",
        "CAST({c} AS FLOAT)",
        text=_NUMBER_TEXT,
        columnar=_NUMBER,
    ),
    TypeRule("double.*", "DOUBLE PRECISION", _NUMBER, "DOUBLE", text=_NUMBER_TEXT),
    TypeRule(r"bit\(1\)", "BOOLEAN", "{c} + 0", "BOOLEAN", text=_WHOLE, checked=_WHOLE),
    TypeRule(r"bit\((?P<p>\d+)\)", "BIT({p})", _BITS, text=_BITS),
    TypeRule("date", "DATE", _TEXT, cast_text=True, columnar="{c}", checked=_TEXT),
    TypeRule(
        f"datetime{_STORED}", "TIMESTAMP", _TEXT, cast_text=True, columnar="{c}", checked=_MOMENT
    ),
    # The session's zone is UTC.
    TypeRule(
        f"timestamp{_STORED}",
        "TIMESTAMP WITH TIME ZONE",
        _TEXT,
        cast_text=True,
        columnar="{c}",
        checked=_MOMENT,
    ),
    TypeRule(f"time{_STORED}", "TIME", _TEXT),
    TypeRule(r"char\((?P<p>\d+)\).*", "CHAR({p})", _TEXT, columnar="{c}"),
    # These two sort by their members' numbers but compare by their names, so they can't be keys.
    TypeRule(r"enum\(.*", "ENUM", _TEXT),
    TypeRule(r"set\(.*", "SET", _TEXT),
    TypeRule(r"varchar\((?P<p>\d+)\).*", "VARCHAR({p})"),
    TypeRule("(?:tiny|medium|long)?text.*", "TEXT"),
    TypeRule(
        r"(?:var)?binary\(\d+\).*|.*blob.*",
        "VARBINARY",
        read_as="BINARY",
        text="HEX({c})",
        checked="LOWER(HEX({c}))",
    ),
    TypeRule(f"vector{_DIGITS}", "REAL ARRAY", "HEX({c})", becomes=_VECTOR, text="HEX({c})"),
    TypeRule("json", "JSON", _TEXT),
    TypeRule("uuid", "UUID", _TEXT),
    TypeRule("inet[46]", "TEXT", _TEXT),
    TypeRule(
        "geometry|(?:multi)?(?:point|linestring|polygon)|geom(?:etry)?collection",
        "GEOMETRY",
        _SHAPE,
        text=_SHAPE,
    ),
    # Types of a later version, or of a plugin: the server refuses a cast that it does not know.
    TypeRule(".*", "TEXT", _TEXT, ordered=False, remark=_UNKNOWN),
)

# The catalog describes no column of a view over a table that is gone. DISTINCT materialises the
# list of tables once, with an index: otherwise the catalog would be scanned for each column. As
# bytes, because to the catalog's own collation `a`, `A` and `ä` are the same name.
_COLUMNS = """
SELECT c.TABLE_SCHEMA AS table_schema, c.TABLE_NAME AS table_name,
  CASE t.TABLE_TYPE WHEN 'VIEW' THEN 'view' ELSE 'table' END AS table_kind,
    t.TABLE_ROWS AS row_estimate,
  c.COLUMN_NAME AS column_name, c.ORDINAL_POSITION AS position, c.COLUMN_TYPE AS native_type,
  CASE c.IS_NULLABLE WHEN 'NO' THEN '0' ELSE '1' END AS nullable,
  CASE WHEN FIND_IN_SET('select', c.PRIVILEGES) = 0
    THEN CONCAT('the user lacks the privilege; run GRANT SELECT ON `',
      REPLACE(c.TABLE_SCHEMA, '`', '``'), '`.`',
      REPLACE(c.TABLE_NAME, '`', '``'), '` TO ', CURRENT_USER()) END AS obstacle
FROM information_schema.COLUMNS c
JOIN (
  SELECT DISTINCT CAST(TABLE_SCHEMA AS BINARY) AS schema_bytes,
    CAST(TABLE_NAME AS BINARY) AS name_bytes,
    TABLE_TYPE, TABLE_ROWS
  FROM information_schema.TABLES
) t ON t.schema_bytes = CAST(c.TABLE_SCHEMA AS BINARY)
  AND t.name_bytes = CAST(c.TABLE_NAME AS BINARY)
WHERE t.TABLE_TYPE <> 'SEQUENCE'
UNION ALL
SELECT TABLE_SCHEMA, TABLE_NAME, 'view', NULL, '', 0, '', '1',
  CONCAT('its table, or a column or function in it, is gone, or its definer may not read it; ',
    'fix or drop the view')
FROM information_schema.VIEWS
"""

_PRIMARY_KEYS = """
SELECT TABLE_SCHEMA AS table_schema, TABLE_NAME AS table_name, COLUMN_NAME AS column_name,
  SEQ_IN_INDEX AS position
FROM information_schema.STATISTICS WHERE INDEX_NAME = 'PRIMARY'
"""

_DEFAULTS = """
SELECT TABLE_SCHEMA AS table_schema, TABLE_NAME AS table_name, COLUMN_NAME AS column_name,
  ORDINAL_POSITION AS position, CONCAT_WS(' ', COLUMN_DEFAULT, EXTRA) AS filled
FROM information_schema.COLUMNS WHERE COLUMN_DEFAULT IS NOT NULL OR EXTRA <> ''
"""

# An index on a prefix of a text doesn't order the whole text.
_INDEXES = """
SELECT TABLE_SCHEMA AS table_schema, TABLE_NAME AS table_name, COLUMN_NAME AS column_name,
  1 AS position
FROM information_schema.STATISTICS WHERE SEQ_IN_INDEX = 1 AND INDEX_TYPE = 'BTREE'
  AND SUB_PART IS NULL
"""

# A few hundred values, since a single one for a big catalog would exceed the server's limit. MySQL
# 9.6 and later have no MD5 and no SHA1.
_AS_JSON = (
    "SELECT JSON_ARRAYAGG(JSON_ARRAY({columns})) FROM ({query}) q GROUP BY table_schema, "
    "LEFT(SHA2(table_name, 256), 2)"
)

# The driver's type names of a query's columns that differ from the catalog's, and their separate
# parameters.
_DESCRIBED_TYPE = """
CASE {name} WHEN 'BOOLEAN' THEN 'tinyint' WHEN 'INTEGER' THEN 'int'
  WHEN 'INTEGER UNSIGNED' THEN 'int unsigned'
  WHEN 'DECIMAL' THEN 'decimal({precision},{scale})'
  WHEN 'DECIMAL UNSIGNED' THEN 'decimal({precision},{scale})'
  WHEN 'BIT' THEN 'bit({precision})' WHEN 'BINARY' THEN 'binary({precision})'
  WHEN 'VARBINARY' THEN 'varbinary({precision})'
  WHEN 'CHAR' THEN 'char({precision})' WHEN 'VARCHAR' THEN 'varchar({precision})' ELSE {name} END
"""

# A transaction's beginning is shown in the server's own zone.
_AGE = "TIMESTAMPDIFF(SECOND, CONVERT_TZ(t.trx_started, 'SYSTEM', '+00:00'), UTC_TIMESTAMP())"
_OTHER = "t.trx_mysql_thread_id <> CONNECTION_ID()"
# What the text of our statements, the spelling of values and the number of rows depend on, whatever
# the server sets, also by `init_connect`.
_SESSION = (
    "time_zone='+00:00',sql_mode='NO_BACKSLASH_ESCAPES',group_concat_max_len=67108864,"
    "net_write_timeout=600,"
    "character_set_client=utf8mb4,character_set_connection=utf8mb4,character_set_results=utf8mb4,"
    "sql_select_limit=18446744073709551615,sql_auto_is_null=0"
)

# Where both drivers have a mode of encryption, its names in MySQL's.
_MODES = {
    "disable": "DISABLED",
    "trust": "REQUIRED",
    "verify-ca": "VERIFY_CA",
    "verify-full": "VERIFY_IDENTITY",
}


def _for_mariadb_driver(parameters: list[str]) -> list[str]:
    """With encryption as users of MySQL's driver request it, where this driver ignores that or does
    not know the word.
    """
    given = {
        name.lower(): value.lower()
        for name, _, value in (each.partition("=") for each in parameters)
    }
    if "sslmode" in given:
        # It has no mode that falls back to none.
        other = [each for each in parameters if each.lower() != "sslmode=preferred"]
        return parameters if len(other) == len(parameters) else [*other, "sslMode=trust"]
    required = given.get("requiressl") == "true" and "usessl" not in given
    unverified = given.get("usessl") == "true" and given.get("verifyservercertificate") == "false"
    if not required and not unverified:
        return parameters
    words = ("requiressl", "usessl", "verifyservercertificate")
    mode = "verify-ca" if given.get("verifyservercertificate") == "true" else "trust"
    return [
        *(each for each in parameters if each.partition("=")[0].lower() not in words),
        f"sslMode={mode}",
    ]


def _for_mysql_driver(parameters: list[str]) -> list[str]:
    """With the modes of encryption as this driver spells them."""
    named = (each.partition("=") for each in parameters)
    return [
        f"{name}={_MODES.get(value.lower(), value)}"
        if name.lower() == "sslmode"
        else f"{name}{sign}{value}"
        for name, sign, value in named
        if name != "permitMysqlScheme"
    ]


_DIALECT = Dialect(
    name="mariadb",
    hides_tables=True,
    url_prefixes=("jdbc:mariadb:", "jdbc:mysql:"),
    # Spark quotes by the URL, and only recognises MySQL's: with MariaDB's, a quoted column would be
    # a string.
    url_form=("jdbc:mysql:", "permitMysqlScheme"),
    parameters=_for_mariadb_driver,
    driver="org.mariadb.jdbc.Driver",
    driver_package="org.mariadb.jdbc:mariadb-java-client:3.5.6",
    type_rules=_RULES,
    literals=LITERALS | {KeyType.TIMESTAMP: "TIMESTAMP {w}"},
    key_select={
        KeyType.INTEGER: "{c} + 0",
        **dict.fromkeys(
            [KeyType.DECIMAL, KeyType.DATE, KeyType.DATETIME, KeyType.TIMESTAMP, KeyType.UUID],
            _TEXT,
        ),
        KeyType.BINARY: "HEX({c})",
    },
    page=LIMIT,
    text_select=_TEXT,
    bytes_select="CAST({c} AS BINARY)",
    now="CAST(UTC_TIMESTAMP(6) AS CHAR)",
    system_schemas=("information_schema", "mysql", "performance_schema", "sys"),
    checksums=Checksums(
        text="CONCAT(CHAR_LENGTH({s}), ':', CONVERT({s} USING utf8mb4))",
        sha256="SHA2(CONVERT({t} USING utf8mb4), 256)",
        number="CAST(CONV({h}, 16, 10) AS UNSIGNED)",
    ),
    marks=Marks(
        # NULL if the server can't build such a long text; then the row has no mark.
        text="CASE WHEN {c} IS NULL THEN 'N' ELSE CONCAT(CHAR_LENGTH({s}), ':', CONVERT({s} USING "
        "utf8mb4)) END",
        joined="CONCAT({texts})",
        between=", ",
        mark="CAST(CONV(SUBSTR(SHA2({t}, 256), 1, 15), 16, 10) AS SIGNED)",
        hashed=True,
        at_boundary="{e} + 8 * COALESCE({m}, 0)",
        read_as="BIGINT",
        # One expression: for a count beside the sum, the server would make each mark twice.
        all=f"CAST(SUM(m + {MARKED_ROW}) AS CHAR)",
        begin=(
            "SET lock_wait_timeout=1 /*M!100101 , max_statement_time=2 */ /*!50708 , "
            "max_execution_time=2000 */",
        ),
    ),
    together="SELECT GROUP_CONCAT(n, ' ', found SEPARATOR '\n') FROM ({parts}) parts",
    catalog=CatalogQueries(_COLUMNS, _PRIMARY_KEYS, _INDEXES, _AS_JSON, defaults=_DEFAULTS),
    described_type=_DESCRIBED_TYPE,
    width="OCTET_LENGTH({s})",
    columnar_driver=CONNECTORX,
    connection_driver="pymysql",
    open_transactions=f"SELECT MAX(IF({_OTHER}, {_AGE}, NULL)) AS age, "
    "FLOOR(UNIX_TIMESTAMP(NOW(6))) AS clock, "
    f"MAX(IF({_OTHER} AND t.trx_rows_modified > 0, {_AGE}, NULL)) AS written, "
    # A number, or in newer versions of MariaDB a word. Readers of Aurora have the second one.
    "IF(CAST(@@global.read_only AS CHAR) IN ('0', 'OFF') AND @@global.innodb_read_only = 0, 0, 1) "
    f"AS is_replica, MAX(NOT {_OTHER}) AS own FROM information_schema.INNODB_TRX t "
    f"WHERE t.trx_is_read_only = 0 OR NOT {_OTHER}",
    # InnoDB makes a new list only if nobody has read the last one for 0.1 s.
    open_transactions_kept=0.2,
    open_transactions_begin="START TRANSACTION WITH CONSISTENT SNAPSHOT",
    open_transactions_grant="GRANT PROCESS ON *.* TO {user}",
    # The server streams rows without further requests.
    fetch_size=1,
    # Rows are stored in the order of the primary key, so each large range of another key costs a
    # scan.
    secondary_ranges=False,
    # MariaDB and MySQL each execute one of these comments; Spark only passes on one statement.
    statement_timeout="{session} /*M!100101 , max_statement_time={seconds} */"
    " /*!50708 , max_execution_time={milliseconds} */",
    quote_mark="`",
    # The driver treats a backslash in a string as an escape, whatever the session's setting.
    backslash_string="_utf8mb4 X'{hex}'",
    alive=Alive(
        {"connectTimeout": "20000", "socketTimeout": "20000"},
        "getThreadId",
        "SELECT 1 FROM information_schema.PROCESSLIST p WHERE p.ID = {session} AND p.COMMAND = "
        "'Sleep' AND p.USER = SUBSTRING_INDEX(USER(), '@', 1)",
    ),
    properties={
        # For every connection, including the one with which Spark queries the columns.
        "sessionVariables": _SESSION,
        # Otherwise, on a server whose default is READ UNCOMMITTED, rows would arrive that are
        # rolled back later.
        "transactionIsolation": "REPEATABLE-READ",
        "connectTimeout": "30000",
        # For executors on other machines; on this one `open_connections` sets them for each driver.
        "tcpKeepAlive": "true",
        "tcpKeepIdle": "30",
        "tcpKeepInterval": "10",
        "tcpKeepCount": "4",
        # Otherwise Spark does not recognise the type of a key.
        "uuidAsString": "true",
        # Otherwise a server could request any file of this machine.
        "allowLocalInfile": "false",
    },
    # Repeated, as the URL may have its own session variables. Tables of MariaDB may keep their
    # history, which is not read; MySQL's driver has no property for the isolation level.
    session_statements=(
        f"SET {_SESSION} /*M!100304 ,system_versioning_asof=DEFAULT */"
        " /*!80000 ,transaction_isolation='REPEATABLE-READ' */",
    ),
)

_BY_MYSQL_DRIVER = replace(
    _DIALECT,
    driver="com.mysql.cj.jdbc.Driver",
    url_form=("jdbc:mysql:", ""),
    parameters=_for_mysql_driver,
    # Rows come by a cursor: otherwise it keeps all of them in memory.
    fetch_size=None,
    alive=None if _DIALECT.alive is None else replace(_DIALECT.alive, session="getId"),
    connection_driver=None,
    properties={
        "sessionVariables": _SESSION,
        "connectTimeout": "30000",
        "tcpKeepAlive": "true",
        "useCursorFetch": "true",
        # The type of such a column is that of the catalog.
        "tinyInt1isBit": "false",
        "allowLoadLocalInfile": "false",
    },
)
MARIADB = replace(_DIALECT, by_other_drivers={"com.mysql:mysql-connector-j": _BY_MYSQL_DRIVER})
