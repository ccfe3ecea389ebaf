"""Casts from text to exact values in Spark: a value that the type can't hold raises an error naming
the column.
"""

from __future__ import annotations

from singer_spark.core.sql_type import SqlType

_FLOATING_TYPES = ("REAL", "DOUBLE PRECISION")
_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
_SPARK_NAMES = {
    "INTEGER": "INT",
    "REAL": "FLOAT",
    "DOUBLE PRECISION": "DOUBLE",
    "TIMESTAMP": "TIMESTAMP_NTZ",
}
_DAY = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"([ T][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,6}0*)?)?)?"
_FLOATING = r"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?"
_ENDLESS = r"(?i:[+-]?inf(inity)?)"
_UUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_ZONE = r"( ?(Z|UTC|[+-][0-9]{1,2}(:?[0-9]{2})?))?"
_TEXTUAL = ("TEXT", "VARCHAR", "CHAR", "JSON", "TIME", "TIME WITH TIME ZONE", "INTERVAL")
_MOMENTS = ("DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
KNOWN_TYPES = (
    *_TEXTUAL,
    "UUID",
    "BOOLEAN",
    *_INTEGERS,
    "DECIMAL",
    "REAL",
    "DOUBLE PRECISION",
    *_MOMENTS,
)


def text_cast(sql_type: SqlType) -> str:
    """A Spark SQL template over `{c}`, a text, for the value of this type.

    It raises `{complaint}` if there is no such value. For an array, `{c}` is an array of texts.

    Raises:
        ValueError: text can't be cast to that type.
    """
    if sql_type.element is not None:
        inside = text_cast(sql_type.element)
        return "{c}" if inside == "{c}" else f"transform({{c}}, x -> {inside.replace('{c}', 'x')})"
    if sql_type.name in _TEXTUAL or (sql_type.name == "DECIMAL" and not sql_type.is_exact_decimal):
        return "{c}"
    spark_type, pattern = _spark_form(sql_type)
    # A pattern is checked first, because Spark's own cast silently drops digits and trailing text.
    fits = f"{{c}} RLIKE '{_whole(pattern)}' AND try_cast({{c}} AS {spark_type}) IS NOT NULL"
    if sql_type.name in _FLOATING_TYPES:
        # Too large a number would become infinity.
        fits += (
            f" AND (abs(try_cast({{c}} AS {spark_type})) <> double('inf') OR {{c}} RLIKE "
            f"'{_whole(_ENDLESS)}')"
        )
    if sql_type.name == "TIMESTAMP WITH TIME ZONE":
        # Its digits may show another year than the instant has in UTC.
        fits += f" AND year(try_cast({{c}} AS {spark_type})) BETWEEN 1 AND 9999"
    refuse = f"CAST(raise_error(concat({{complaint}}, {{c}})) AS {spark_type})"
    return (
        f"CASE WHEN {{c}} IS NULL THEN NULL WHEN {fits} THEN CAST({{c}} AS {spark_type}) ELSE "
        f"{refuse} END"
    )


def _whole(pattern: str) -> str:
    # A bare dollar would allow a final line feed.
    return f"(?s)^(?:{pattern})$(?!.)"


def spark_string(text: str) -> str:
    """A text as a Spark SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _spark_form(sql_type: SqlType) -> tuple[str, str]:
    """The Spark type, and a regular expression for the texts that it can represent exactly."""
    name = sql_type.name
    spark_name = _SPARK_NAMES.get(name, name)
    if name in _INTEGERS:
        return spark_name, "[+-]?[0-9]+"
    if name == "DECIMAL":
        scale = sql_type.scale or 0
        return f"DECIMAL({sql_type.precision},{scale})", f"[+-]?[0-9]*([.][0-9]{{0,{scale}}}0*)?"
    if name in _FLOATING_TYPES:
        return spark_name, f"{_FLOATING}|{_ENDLESS}|(?i:[+-]?nan)"
    match name:
        case "UUID":
            return "STRING", _UUID
        case "BOOLEAN":
            return "BOOLEAN", "(?i:t|f|true|false|y|n|yes|no|0|1)"
        case "DATE":
            return "DATE", _DAY
        case "TIMESTAMP":
            return spark_name, _DAY + _CLOCK
        case "TIMESTAMP WITH TIME ZONE":
            return "TIMESTAMP", _DAY + _CLOCK + _ZONE
    raise ValueError(f"text can't be read as {sql_type}")
