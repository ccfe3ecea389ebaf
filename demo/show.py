"""Shows what the demo's lake holds, with DuckDB as an independent reader."""

from __future__ import annotations

from pathlib import Path

import duckdb

LAKE = Path(".demo/lake")


def main() -> None:
    """Prints the rows, the files and the state."""
    for table in ("customers", "orders"):
        source = f"read_parquet('{LAKE}/raw/{table}/*.parquet', union_by_name=true)"
        rows = duckdb.sql(f"select count(*) from {source}").fetchall()[0][0]
        print(f"  {table}: {rows} rows")
    newest = f"read_parquet('{LAKE}/raw/orders/*.parquet', union_by_name=true)"
    columns = "id, customer_id, amount, state, updated_at"
    print(duckdb.sql(f"select {columns} from {newest} order by _sdc_sequence desc, updated_at desc, id desc limit 4"))
    print("Files of the lake:")
    for file in sorted(LAKE.rglob("*.parquet")):
        print(f"  {file} ({file.stat().st_size:,} bytes)")
    state = LAKE / ".dataspoc/state/shop/state.json"
    print(f"Saved state, {state}:\n  {state.read_text().strip()}")


if __name__ == "__main__":
    main()
