"""`spark-lake report`: the page in a real browser, on a phone and on a desk, in light and dark."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from faults.small_lake import LAYOUT, PIPELINE, STEP, SmallLake
from servers.browser import Seen
from singer_spark.core.messages import timestamp_text
from singer_spark.errors import ConfigurationError, register_secret
from singer_spark.state.run_log import encode, runs_folder
from target.delta_lake import DeltaLake
from target.iceberg_lake import IcebergLake
from target.loading import Lake, record, schema
from target_spark_lake.commit.bookmarks import lag_seconds
from target_spark_lake.commit.pipeline_run import open_run
from target_spark_lake.ops.spark_lake import command

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HOSTILE = (
    "a<script>alert(1)</script>\"'&amp;</title><img src=http://127.0.0.1:9/x "
    "onerror=alert(2)>\u202e ü😀"
)
PHONE, DESK = 360, 1280
# Contrast that WCAG asks of text (level AA).
READABLE = 4.5


class Bucket:
    """A bucket with the journals of runs that never were."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.page = folder / "report.html"
        self.config = folder / "target.json"
        self.state: dict[str, Any] | None = None
        self.config.write_text(json.dumps({"bucket": f"{folder}/lake", "pipeline": "shop"}))

    def add(
        self,
        pipeline: str,
        started: datetime,
        *,
        error: str | None = None,
        command: str | None = None,
        newest: timedelta = timedelta(hours=2),
        **streams: dict[str, int],
    ) -> None:
        run_id = started.strftime("%Y%m%dT%H%M%S%fZ") + "-00000000"
        ended = timestamp_text(started + timedelta(seconds=90))
        bookmark = {
            "replication_key": "at",
            "replication_key_value": (started - newest).isoformat(),
        }
        state = {"bookmarks": dict.fromkeys(streams, bookmark)}
        body: dict[str, Any] = {
            "run_id": run_id,
            "pipeline": pipeline,
            "phase": "aborted" if error else "published",
            "outcome": "failed" if error else "succeeded",
            "started_at": timestamp_text(started),
            "committed_at": ended,
            "finished_at": ended,
            "last_committed": None,
            "streams": {
                name: {"files": 1, "rejected": 0, **each} for name, each in streams.items()
            },
            "state": None if error else state,
            "previous_state": None,
            "error": error,
            "command": command,
        }
        place = self.folder / "lake" / runs_folder(pipeline)
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{run_id}.json").write_bytes(encode(body))

        self.state = body["state"] or self.state

    def save_state(self, **members: object) -> None:
        """Of the last run that was added, as it published it."""
        place = self.folder / "lake/.dataspoc/state/shop/state.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps({**(self.state or {}), **members}))

    def report(self, *words: str) -> str:
        assert (
            command(["report", "--config", str(self.config), "--output", str(self.page), *words])
            == 0
        )
        return self.page.read_text()


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(tmp_path)


def stream_row(page: str, name: str) -> list[str]:
    """The texts beside a stream's name and chart: rows loaded, rows in the table, …"""
    (row,) = re.findall(rf"<bdi>{name}</bdi></span></td>(.*?)</tr>", page, re.DOTALL)
    cells = re.findall(r"<td[^>]*data-label[^>]*>(.*?)</td>", row, re.DOTALL)
    return [re.sub(r"<[^>]*>", "", cell).strip() for cell in cells[1:]]


def contrast(page: Any, selector: str) -> float:
    """Between a text and the first ground behind it, as WCAG counts it."""
    found: float = page.evaluate(
        """selector => {
            const numbers = text => text.match(/[\\d.]+/g).map(Number);
            const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
                .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
                .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
            const element = document.querySelector(selector);
            let ground = element;
            while (/, 0\\)$/.test(getComputedStyle(ground).backgroundColor))
                ground = ground.parentElement;
            const both = [getComputedStyle(element).color, getComputedStyle(ground).backgroundColor]
                .map(text => light(numbers(text))).sort((a, b) => b - a);
            return (both[0] + 0.05) / (both[1] + 0.05);
        }""",
        selector,
    )
    return found


def test_page_is_readable_everywhere_and_offline(bucket: Bucket, browser: Browser) -> None:
    """The page is readable on phone and desktop, light and dark, without any request."""
    now = datetime.now(UTC)
    for hours in range(60):
        error = "the source is gone " + "x" * 300 if hours % 20 == 3 else None
        bucket.add(
            "shop",
            now - timedelta(hours=hours),
            error=error,
            orders={"records": hours, "bytes": 1, "rejected": 1},
        )
        bucket.add(
            HOSTILE,
            now - timedelta(days=hours),
            **{HOSTILE + "y" * 300: {"records": 10**15, "bytes": 10**15}},
        )
    bucket.report("--all")
    shots = {}
    for width in (PHONE, DESK):
        for scheme in ("light", "dark"):
            seen = Seen(browser, bucket.page, width=width, scheme=scheme)
            assert (seen.requests, seen.complaints) == ([bucket.page.as_uri()], [])
            seen.page.evaluate(
                "document.querySelectorAll('details').forEach(each => each.open = true)"
            )
            assert seen.page.evaluate("document.documentElement.scrollWidth") == width
            for selector in (
                ".streams bdi",
                ".quiet",
                ".bad",
                ".outcome.good",
                ".outcome.bad",
                "a",
                "td span",
            ):
                assert contrast(seen.page, selector) >= READABLE, (scheme, selector)
            shots[width, scheme] = seen.page.screenshot()
            seen.close()
    assert len(set(shots.values())) == len(shots)


def test_hostile_texts_are_escaped_and_secrets_masked(bucket: Bucket, browser: Browser) -> None:
    """Hostile names and texts are escaped, and secrets are masked."""
    register_secret("hunter2-of-the-lake")
    now = datetime.now(UTC)
    bucket.add(HOSTILE, now - timedelta(hours=1), **{HOSTILE: {"records": 7, "bytes": 1}})
    bucket.add(HOSTILE, now, error=f"{HOSTILE}: password hunter2-of-the-lake was refused\0")
    page = bucket.report("--all")
    assert "hunter2" not in page
    seen = Seen(browser, bucket.page, width=DESK, scheme="light")
    assert (seen.requests, seen.complaints) == ([bucket.page.as_uri()], [])
    shown = HOSTILE.replace("\u202e", "\ufffd")
    assert seen.page.locator("script, img, iframe, object, embed").count() == 0
    assert seen.page.locator("h2 bdi").inner_text() == shown
    assert seen.page.locator(".streams bdi").inner_text() == shown
    assert (
        seen.page.locator(".failures p").inner_text()
        == f"{shown}: password ***** was refused\ufffd"
    )
    seen.close()


def test_charts_give_numbers_to_screen_readers(bucket: Bucket, browser: Browser) -> None:
    """Charts give their numbers on hover and to screen readers."""
    now = datetime.now(UTC)
    bucket.add("shop", now - timedelta(days=30), orders={"records": 1_234, "bytes": 5_000})
    bucket.add("shop", now - timedelta(days=2), error="gone")
    bucket.report()
    seen = Seen(browser, bucket.page, width=DESK, scheme="light")
    charts = seen.page.locator("svg[role=img]")
    names = [
        charts.nth(number).get_attribute("aria-label") or "" for number in range(charts.count())
    ]
    assert "1 run succeeded, 1 run failed in all" in names[0]
    assert "Duration for each day" in names[1]
    assert "max 1 min 30 s" in names[1]
    assert "1,234 rows in all, max 1,234 rows" in names[2]
    assert "5.0 kB in all" in names[3]
    hints = charts.nth(2).locator("title").all_text_contents()
    assert [hint for hint in hints if "no run" not in hint] == [
        f"{now - timedelta(days=30):%Y-%m-%d}: 1,234 rows",
        f"{now - timedelta(days=2):%Y-%m-%d}: 0 rows",
    ]
    summary = seen.page.locator("summary").first
    summary.focus()
    seen.page.keyboard.press("Enter")
    rows = seen.page.locator("details[open] tbody tr")
    failed, good = (rows.nth(place).locator("td").all_inner_texts() for place in (0, 1))
    assert failed[1:] == ["1 run failed", "1 min 30 s", "0 rows", "0 B"]
    assert good[1:] == ["1 run succeeded", "1 min 30 s", "1,234 rows", "5.0 kB"]
    headings = seen.page.locator("h1, h2, h3, h4").evaluate_all(
        "all => all.map(each => +each.tagName[1])"
    )
    assert all(after <= before + 1 for before, after in pairwise(headings))
    seen.close()


@pytest.mark.slow
def test_page_size_is_bounded_for_many_runs(bucket: Bucket) -> None:
    """A thousand runs and many streams make a page of bounded size."""
    now = datetime.now(UTC)
    streams = {f"stream_{number}": {"records": 1, "bytes": 1} for number in range(60)}
    for hours in range(1_000):
        failed = "gone " + "x" * 5_000 if hours % 3 == 0 else None
        bucket.add(
            "shop", now - timedelta(hours=hours), error=failed, **({} if failed else streams)
        )
    page = bucket.report()
    assert "<dt>Runs</dt><dd>1,000</dd>" in page
    assert f"<dt>Rows loaded</dt><dd>{666 * 60:,}</dd>" in page
    assert len(page) < 2_000_000
    assert page.count('class="bar') < 10_000


def test_empty_bucket_has_report_page(bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    """The page says that no run has happened yet."""
    assert "No pipeline has run in this bucket yet." in bucket.report("--all")
    capsys.readouterr()
    assert "No run yet." in bucket.report("--json")
    assert json.loads(capsys.readouterr().out)["runs"] == {"shop": 0}
    assert sorted(path.name for path in bucket.folder.iterdir()) == ["report.html", "target.json"]


def test_unwritable_report_fails(bucket: Bucket) -> None:
    bucket.page.mkdir()
    with pytest.raises(ConfigurationError, match=r"LAKE-096 .*report\.html"):
        bucket.report()
    assert list(bucket.page.iterdir()) == []


def test_page_shows_run_results(tmp_path: Path) -> None:
    lake = SmallLake(f"{tmp_path}/lake", {})
    lake.sync()
    lake.sync()
    run = open_run(lake.storage(), LAYOUT)
    run.fail(RuntimeError("the source is gone"))
    bucket = Bucket(tmp_path)
    page = bucket.report("--pipeline", PIPELINE)
    assert f"<title>{PIPELINE} \N{EN DASH} lake report</title>" in page
    assert "the source is gone" in page
    # `grows` twice its step, `whole` its step and then twice that.
    assert f"<dt>Rows loaded</dt><dd>{5 * STEP}</dd>" in page
    assert stream_row(page, "grows")[:2] == [f"{2 * STEP}", f"{2 * STEP}"]
    assert stream_row(page, "whole")[:2] == [f"{3 * STEP}", f"{2 * STEP}"]
    assert len(re.findall(r"<code>\d{8}T", page)) == 3


def test_page_and_status_agree_on_last_run(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither counts a command as a sync, whether it succeeded or failed."""
    now, hour = datetime.now(UTC), timedelta(hours=1)
    bucket.add("shop", now - 9 * hour, orders={"records": 5, "bytes": 1})
    bucket.add("shop", now - 5 * hour, error="the source is gone")
    bucket.add("shop", now - hour, command="compact", orders={"records": 0, "bytes": 1})
    page = bucket.report()
    capsys.readouterr()
    command(["status", "--config", str(bucket.config), "--json"])
    (reported,) = json.loads(capsys.readouterr().out)
    assert reported["outcome"] == "failed"
    assert "<dt>Last success</dt><dd>8 h 58 min ago</dd>" in page
    assert timedelta(seconds=reported["age_seconds"]) // timedelta(minutes=1) == 8 * 60 + 58
    assert '<bdi>shop</bdi>\n <span class="outcome bad">failed</span>' in page


def test_damaged_journal_hides_no_other_run(bucket: Bucket) -> None:
    """A damaged journal is one line of the page and hides no other run."""
    now = datetime.now(UTC)
    bucket.add("shop", now, orders={"records": 5, "bytes": 1})
    (
        bucket.folder / "lake" / runs_folder("shop") / "20250101T000000000000Z-00000001.json"
    ).write_bytes(b"{")
    page = bucket.report()
    assert "is damaged" in page
    assert "<dt>Rows loaded</dt><dd>5</dd>" in page


def test_idle_source_is_not_lagging(bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    """The lag is the time since the lake had all rows, not the age of the newest row."""
    now = datetime.now(UTC)
    bucket.add(
        "shop",
        now - timedelta(minutes=10),
        newest=timedelta(days=935),
        orders={"records": 0, "bytes": 0},
    )
    bucket.save_state()
    page = bucket.report()
    assert "<dt>Lag</dt><dd>10 min" in page
    assert stream_row(page, "orders")[-1] == "no new rows for 935 d"
    capsys.readouterr()
    command(["status", "--config", str(bucket.config)])
    assert "orders: no new rows for 935 d" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("why", ["row", "budget", "stream"])
def test_unreached_watermark_is_lag(bucket: Bucket, why: str) -> None:
    """The row may be newer than the run, or the run ended early or skipped the stream."""
    now, day = datetime.now(UTC), timedelta(days=1)
    newest = {"row": -timedelta(minutes=10), "budget": 3 * day, "stream": 3 * day}[why]
    bucket.add("shop", now - day, newest=newest, orders={"records": 5, "bytes": 1})
    bucket.save_state(currently_syncing="orders" if why == "budget" else None)
    if why == "stream":
        bucket.add("shop", now - timedelta(hours=1), customers={"records": 5, "bytes": 1})
    page, lag = bucket.report(), {"row": "23 h 50 min", "budget": "4 d", "stream": "1 d"}[why]
    assert f"<dt>Lag</dt><dd>{lag}" in page
    newest_row = {"row": "23 h 50 min ago", "budget": "4 d ago", "stream": "no new rows for 4 d"}[
        why
    ]
    assert stream_row(page, "orders")[-1] == newest_row


def test_chart_shows_small_loads_beside_first_load(bucket: Bucket) -> None:
    """The scale is logarithmic and labeled."""
    now = datetime.now(UTC)
    for days in range(20):
        bucket.add(
            "shop",
            now - timedelta(days=days),
            orders={"records": 5_000_000 if days == 19 else 1_000, "bytes": 1},
        )
    page = bucket.report()
    (chart,) = re.findall(
        r"<figure>\s*<figcaption><span><b>Rows</b>(.*?)</figure>", page, re.DOTALL
    )
    assert "log scale" in chart and "max 5,000,000 rows" in chart
    heights = [float(height) for height in re.findall(r'height="([\d.]+)"/>', chart)]
    assert max(heights) == 100 and min(heights) > 40
    assert page.count("log scale</span>") == 1


@pytest.mark.parametrize("kind", [Lake, DeltaLake, IcebergLake])
def test_table_rows_are_shown_beside_loaded_rows(tmp_path: Path, kind: type[Lake]) -> None:
    lake = kind(tmp_path / "lake")
    for method in ("append-only", "append-dedup"):
        stream = schema(method, {"id": {"type": "integer"}}, ("id",), **{"x-load-method": method})
        lake.load(stream, *(record(method, id=n) for n in (1, 2, 3)))
        lake.load(stream, *(record(method, id=n) for n in (3, 4)))
    bucket = Bucket(tmp_path)
    page = bucket.report("--pipeline", "test")
    assert stream_row(page, "append-only")[:2] == ["5", "5"]
    assert stream_row(page, "append-dedup")[:2] == ["5", "4"]


@pytest.mark.parametrize(
    ("value", "lag"),
    [
        ("2026-01-01T00:00:00.000000", 3_600),
        ("2026-01-01T00:00:00.000000Z", 3_600),
        ("2026-01-01T02:30:00+02:00", 1_800),
        ("2026-01-01T00:59:59.999999999", 0.000001),
        ("2026-01-01", 3_600),
        ("2027-01-01", -364 * 86_400 - 82_800),
        ("0001-01-01", None),
        ("20260101", None),
        ("2026-13-01", None),
        ("order-1", None),
        (340, None),
        (None, None),
    ],
)
def test_only_time_keys_have_lag(value: object, lag: float | None) -> None:
    found = lag_seconds(value, datetime(2026, 1, 1, 1, tzinfo=UTC))
    assert found == (None if lag is None else pytest.approx(lag, abs=1e-5))
