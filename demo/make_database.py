"""Makes the demo's shop, a real SQLite database; `--change` lets a day of trade pass in it.

python demo/make_database.py .demo/shop.db
python demo/make_database.py .demo/shop.db --change
"""

from __future__ import annotations

import argparse
import sqlite3
from datetime import datetime, timedelta
from pathlib import Path

OPENING = datetime(2025, 1, 20, 9, 0)
CUSTOMERS = 50
ORDERS = 340
CITIES = ("Łódź", "Zürich", "São Paulo", "東京", "Reykjavík")
STATES = ("new", "paid", "shipped")

TABLES = """
create table customers (
  id integer primary key, name varchar(80) not null, city text, vip boolean not null,
    since date not null
);
create table orders (
  id integer primary key, customer_id integer not null references customers,
    amount decimal(12,2) not null,
  state varchar(10) not null, note text, updated_at timestamp not null
);
create index orders_updated_at on orders (updated_at);
"""


def moment(minutes: int) -> str:
    """A time of the shop's day as SQLite keeps it."""
    return (OPENING + timedelta(minutes=minutes)).isoformat(sep=" ")


def order(number: int) -> tuple[object, ...]:
    """The order of this number; five orders share each minute, so the bookmark falls into a tie."""
    note = 'says "hi"\nand leaves' if number % 7 == 0 else None
    amount = f"{number * 1.37:.2f}"
    return number, number % CUSTOMERS + 1, amount, STATES[number % 3], note, moment(number // 5)


def open_shop(connection: sqlite3.Connection) -> None:
    """Creates and fills the tables."""
    connection.executescript(TABLES)
    connection.executemany(
        "insert into customers values (?, ?, ?, ?, ?)",
        [
            (n, f"Customer {n}", CITIES[n % 5], n % 9 == 0, f"20{n % 25:02d}-02-28")
            for n in range(1, CUSTOMERS + 1)
        ],
    )
    connection.executemany(
        "insert into orders values (?, ?, ?, ?, ?, ?)", map(order, range(1, ORDERS + 1))
    )


def trade(connection: sqlite3.Connection) -> None:
    """One more order at the very minute of the bookmark, two later ones, and an old one that is
    shipped.
    """
    last_minute = ORDERS // 5
    connection.executemany(
        "insert into orders values (?, 7, 19.99, 'new', ?, ?)",
        [
            (ORDERS + 1, "in the same minute as the last", moment(last_minute)),
            (ORDERS + 2, "a minute later", moment(last_minute + 1)),
            (ORDERS + 3, "and one more", moment(last_minute + 2)),
        ],
    )
    connection.execute(
        "update orders set state = 'shipped', updated_at = ? where id = 1",
        (moment(last_minute + 3),),
    )


def main() -> None:
    """Reads the command line and does it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path)
    parser.add_argument("--change", action="store_true")
    arguments = parser.parse_args()
    arguments.path.parent.mkdir(parents=True, exist_ok=True)
    if not arguments.change:
        arguments.path.unlink(missing_ok=True)
    with sqlite3.connect(arguments.path) as connection:
        (trade if arguments.change else open_shop)(connection)
    connection.close()


if __name__ == "__main__":
    main()
