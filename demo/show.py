"""Shows what the demo's lake holds, with Arrow as an independent reader."""

from __future__ import annotations

from pathlib import Path

import pyarrow.dataset as ds
from rich.console import Console
from rich.table import Table

LAKE = Path(".demo/lake")
COLUMNS = ("id", "customer_id", "amount", "state", "updated_at")


def main() -> None:
    """Prints the rows, the files and the state."""
    for table in ("customers", "orders"):
        print(f"  {table}: {ds.dataset(LAKE / 'raw' / table).count_rows()} rows")
    newest = Table(*COLUMNS, title="the last orders that came")
    order = [(name, "descending") for name in ("_sdc_sequence", "updated_at", "id")]
    for row in (
        ds.dataset(LAKE / "raw/orders")
        .to_table()
        .sort_by(order)
        .slice(length=4)
        .select(COLUMNS)
        .to_pylist()
    ):
        newest.add_row(*map(str, row.values()))
    Console(width=100).print(newest)
    print("Files of the lake:")
    for file in sorted(LAKE.rglob("*.parquet")):
        print(f"  {file} ({file.stat().st_size:,} bytes)")
    state = LAKE / ".dataspoc/state/shop/state.json"
    print(f"Saved state, {state}:\n  {state.read_text().strip()}")


if __name__ == "__main__":
    main()
