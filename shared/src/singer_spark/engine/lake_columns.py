"""Lake columns as Spark schemas, and back."""

from __future__ import annotations

from pyspark.sql import types as T

from singer_spark.core.lake_type import SCALARS, Array, Field, LakeType, Struct, parse_type

_SPARK: dict[str, T.DataType] = {
    name: getattr(T, f"{each.spark}Type")() for name, each in SCALARS.items()
}


def spark_columns(columns: Struct) -> T.StructType:
    """The columns of a table as a Spark schema."""
    return T.StructType([T.StructField(each.name, _spark_type(each.type)) for each in columns])


def columns_of_spark(columns: T.StructType) -> Struct:
    """The columns of a Spark schema."""
    return Struct(tuple(Field(each.name, _lake_type(each.dataType)) for each in columns.fields))


def _spark_type(kind: LakeType) -> T.DataType:
    if isinstance(kind, Struct):
        return spark_columns(kind)
    if isinstance(kind, Array):
        return T.ArrayType(_spark_type(kind.element))
    return (
        T.DecimalType(kind.precision, kind.scale) if kind.name == "decimal" else _SPARK[kind.name]
    )


def _lake_type(spark: T.DataType) -> LakeType:
    if isinstance(spark, T.StructType):
        return columns_of_spark(spark)
    if isinstance(spark, T.ArrayType):
        return Array(_lake_type(spark.elementType))
    return parse_type(spark.simpleString())
