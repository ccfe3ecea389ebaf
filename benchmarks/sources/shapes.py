"""The columns of the tables that are copied, by shape.

All have `id` and a clock that grows with it.
"""

from __future__ import annotations

ORDERS = """
    id::bigint                                                             AS id,
    (id % 1000)::integer                                                   AS quantity,
    ((id * 7919) % 100000000 / 100.0)::numeric(12, 2)                      AS amount,
    sqrt(id)::double precision                                             AS weight,
    id % 3 = 0                                                             AS paid,
    ('SKU-' || lpad((id % 50000)::text, 8, '0'))::varchar(20)              AS sku,
    'Order ' || id || ' of customer ' || id * 31 % 200000 || ', ' || substr(md5(id::text), 1,
      24) AS note,
    date '2015-01-01' + (id % 3650)::integer                               AS due_on,
    timestamp '2020-01-01' + id / 3 * interval '11.000137 seconds'         AS updated_at,
    timestamptz '2020-01-01 00:00:00+00' + id * interval '7 seconds'       AS shipped_at,
    md5(id::text)::uuid                                                    AS reference,
    CASE WHEN id % 10 <> 0 THEN (id % 5)::smallint END                     AS priority
"""
KEYS = """
    id::bigint                                                             AS id,
    timestamp '2020-01-01' + id / 3 * interval '11.000137 seconds'         AS updated_at
"""
# Texts beyond ASCII, JSON, moments with a zone: what costs more to read than numbers do.
MIXED = """
    id::bigint                                                             AS id,
    timestamp '2020-01-01' + id / 3 * interval '11.000137 seconds'         AS updated_at,
    timestamptz '2020-01-01 00:00:00+00' + id * interval '7 seconds'       AS shipped_at,
    'Bestellung ' || id || ' für Kundin ' || id * 31 % 200000 || ', Zürich, '
      || substr(md5(id::text), 1, 24) AS note,
    md5(id::text)                                                          AS code,
    jsonb_build_object('lot', id % 997, 'tags', jsonb_build_array('a', id % 7), 'note', 'Größe '
      || id % 40) AS detail,
    (id % 1000)::integer                                                   AS quantity,
    ((id * 7919) % 100000000 / 100.0)::numeric(12, 2)                      AS amount,
    sqrt(id)::double precision                                             AS weight,
    id % 3 = 0                                                             AS paid,
    date '2015-01-01' + (id % 3650)::integer                               AS due_on,
    CASE WHEN id % 10 <> 0 THEN (id % 5)::smallint END                     AS priority
"""
# By turns, as a fact table of a warehouse has them.
WIDE_KINDS = (
    "((id * {n}) % 1000003)::integer",
    "((id * {n}) % 100000000 / 100.0)::numeric(12, 2)",
    "sqrt(id + {n})",
    "(id + {n}) % 3 = 0",
    "'code ' || (id * {n}) % 10007",
    "date '2015-01-01' + ((id + {n}) % 3650)::integer",
    "timestamp '2020-01-01' + (id + {n}) * interval '7 seconds'",
    "CASE WHEN (id + {n}) % 10 <> 0 THEN ((id + {n}) % 300)::smallint END",
)
WIDE_COLUMNS = 198


def columns(shape: str) -> str:
    """What is between SELECT and FROM."""
    if shape == "wide":
        kinds = [
            WIDE_KINDS[number % len(WIDE_KINDS)].format(n=number + 1)
            for number in range(WIDE_COLUMNS)
        ]
        return ",\n".join(
            [KEYS, *(f"    {kind} AS c{number:03d}" for number, kind in enumerate(kinds))]
        )
    if shape == "long":
        text = (
            "(SELECT string_agg(md5((id * part)::text), ' ') FROM generate_series(1, 121) AS part)"
        )
        return f"{KEYS},    {text} AS body"
    return MIXED if shape == "mixed" else ORDERS
