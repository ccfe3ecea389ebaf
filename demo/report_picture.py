"""Photographs the report of a small lake, light and dark, for the first page: `make recording`.

The lake is real: runs of the target, one of whose taps dies on its way. Their journals are dated
back, one run a day.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from servers.browser import Seen, opened

BIN = Path(sys.executable).parent
RUNS, DEAD = 18, 11
WIDTH, HEIGHT = 1000, 500
STREAMS = {"orders": 4_000, "customers": 400, "events": 11_000}
SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "updated_at": {"type": "string"}},
}


def main() -> None:
    """Writes `<file>.png` and `<file>-dark.png`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    file = parser.parse_args().file
    with tempfile.TemporaryDirectory(prefix="report-") as name:
        folder = Path(name)
        (folder / "target.json").write_text(
            json.dumps({"bucket": str(folder / "lake"), "pipeline": "shop"})
        )
        for number in range(RUNS):
            _load(folder, number)
        _date_back(folder / "lake/.dataspoc/runs/shop")
        page = folder / "report.html"
        subprocess.run([BIN / "spark-lake", "report", "--output", page], cwd=folder, check=True)
        page.write_text(page.read_text().replace(str(folder), "/srv/shop"))
        with opened() as browser:
            for scheme, ending in (("light", ".png"), ("dark", "-dark.png")):
                seen = Seen(browser, page, width=WIDTH, scheme=scheme)
                clip = {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT}
                seen.page.screenshot(path=str(file.with_name(file.name + ending)), clip=clip)
                seen.close()


def _load(folder: Path, number: int) -> None:
    """One run; the tap of one of them dies before its last STATE."""
    moment = datetime.now(UTC) - timedelta(minutes=3)
    lines, bookmarks = [], {}
    for stream, rows in STREAMS.items():
        lines.append(
            {"type": "SCHEMA", "stream": stream, "schema": SCHEMA, "key_properties": ["id"]}
        )
        count = round(rows * (1 + 0.5 * math.sin(number / 2 + rows)))
        for row in range(count):
            record = {"id": number * 100_000 + row, "updated_at": moment.isoformat()}
            lines.append({"type": "RECORD", "stream": stream, "record": record})
        bookmarks[stream] = {
            "replication_key": "updated_at",
            "replication_key_value": moment.isoformat(),
        }
    state = {"type": "STATE", "value": {"bookmarks": bookmarks}}
    lines.append({**state, "final": False} if number == DEAD else state)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    command = [BIN / "target-spark-lake", "--config", folder / "target.json"]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=False)
    assert (done.returncode == 0) == (number != DEAD), done.stderr.decode()


def _date_back(runs: Path) -> None:
    for age, path in enumerate(sorted(runs.glob("*.json"), reverse=True)):
        text = path.read_text()
        day = datetime.strptime(path.name[:8], "%Y%m%d").replace(tzinfo=UTC)
        then = day - timedelta(days=age)
        for form in ("%Y%m%dT", "%Y-%m-%dT"):
            text = text.replace(day.strftime(form), then.strftime(form))
        path.unlink()
        (runs / path.name.replace(day.strftime("%Y%m%dT"), then.strftime("%Y%m%dT"))).write_text(
            text
        )


if __name__ == "__main__":
    main()
