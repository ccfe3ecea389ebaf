#!/usr/bin/env bash
# The demo: a database flows into a lake, then only what changed. `make demo` runs it from the project's root.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
state=.demo/lake/.dataspoc/state/shop/state.json

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
run() { printf '$ %s\n' "$*"; "$@"; }
flow() {
  echo "\$ tap-spark-jdbc --config demo/tap.json --state $state | target-spark-lake --config demo/target.json"
  "$bin/tap-spark-jdbc" --config demo/tap.json --state "$state" | "$bin/target-spark-lake" --config demo/target.json
}

rm -rf .demo
say "A small shop in SQLite: 50 customers, 340 orders"
run "$bin/python" demo/make_database.py .demo/shop.db

say "The first run takes everything"
flow
run "$bin/python" demo/show.py

say "Trade continues: an order in the minute of the bookmark, two later ones, an old one is shipped"
run "$bin/python" demo/make_database.py .demo/shop.db --change

say "The second run takes what changed: 4 orders (customers have no replication key, so they come whole)"
flow
run "$bin/python" demo/show.py

say "Try it on your own database: README.md"
