"""Records the terminal of a real first run on PostgreSQL, of the next one, and of a query: `make
recording`.

It makes an animated SVG of 15 seconds. On a busy machine the runs take longer, and are shown
faster. The picture has its own background, so it reads the same on a light and on a dark page.
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import shlex
import struct
import sys
import tempfile
import termios
import time
from dataclasses import dataclass, replace
from fcntl import ioctl
from html import escape
from pathlib import Path

import psycopg
import pyte

from servers.postgresql import Database, PostgreSQL, running

BIN = Path(sys.executable).parent
COLUMNS, ROWS = 92, 24
ORDERS, MORE = 3_000_000, 1_200
FRAME_SECONDS = 0.3
# All frames together, of which the last screen is held so long; a command is shown before it runs.
WHOLE_SECONDS, HELD_SECONDS, COMMAND_SECONDS = 15.0, 4.0, 0.8
FONT, LINE, CHARACTER, MARGIN = 14, 19, 8.43, 16
COLOURS = {
    "default": "#d8dee9",
    "green": "#a3be8c",
    "red": "#bf616a",
    "brown": "#ebcb8b",
    "blue": "#81a1c1",
}
# What the picture shows in place of where it was taken.
SHOWN_URL, SHOWN_FOLDER = "jdbc:postgresql://db/shop", "/srv/shop"
QUERY = "select count(*) as orders, sum(amount) as amount from 'lake/raw/public-orders/*.parquet'"
NEXT_DAY = "spark-lake run   # the next day"
COMMANDS = (
    f"spark-lake init --jdbc-url {SHOWN_URL} --user postgres --tables public.* --bucket ./lake "
    "--pipeline shop --incremental-table 'public.orders:updated_at:timestamp!upsert'",
    "spark-lake run",
    NEXT_DAY,
    f'python -c "import duckdb; duckdb.sql(\\"{QUERY}\\").show()"',
)


@dataclass(frozen=True)
class Frame:
    """A screen, line by line in coloured parts, and the seconds that it is shown."""

    lines: tuple[tuple[tuple[str, str], ...], ...]
    seconds: float


def main() -> None:
    """Writes the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    file = parser.parse_args().file
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    frames: list[Frame] = []
    prefix = "recording-"
    with tempfile.TemporaryDirectory(prefix=prefix) as server, running(Path(server)) as facts:
        database = PostgreSQL(**facts).new_database()
        _fill(database, 1, ORDERS)
        with tempfile.TemporaryDirectory(prefix=prefix) as folder:
            for command in COMMANDS:
                if command == NEXT_DAY:
                    _fill(database, ORDERS + 1, ORDERS + MORE)
                stream.feed(f"\x1b[32m$\x1b[0m {command}\r\n".encode())
                frames += [
                    Frame(_lines(screen), COMMAND_SECONDS),
                    *_frames(command, folder, database, screen, stream),
                ]
    file.write_text(_svg([*_paced(frames), Frame(_lines(screen), HELD_SECONDS)]), encoding="utf-8")


def _fill(database: Database, first: int, last: int) -> None:
    """Orders with these numbers, each a second after the one before; and some customers."""
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        for table, columns in (
            ("orders", "customer int, amount numeric(12, 2), updated_at timestamp"),
            ("customers", "name text"),
        ):
            connection.execute(
                f"create table if not exists {table} (id int primary key, {columns})"
            )
        connection.execute("create index if not exists orders_updated_at on orders (updated_at)")
        connection.execute(
            "insert into orders select n, n % 5000, n % 9973 / 100.0, timestamp '2026-01-01' + n "
            f"* interval '1 second' from generate_series({first}, {last}) n"
        )
        connection.execute(
            "insert into customers select n, 'customer ' || n from generate_series(1, 5000) n on "
            "conflict do nothing"
        )
        connection.execute("analyze")


def _paced(frames: list[Frame]) -> list[Frame]:
    """The frames, shown as fast as is needed for the whole time."""
    pace = min(1.0, (WHOLE_SECONDS - HELD_SECONDS) / sum(frame.seconds for frame in frames))
    return [replace(frame, seconds=frame.seconds * pace) for frame in frames]


def _frames(
    command: str, folder: str, database: Database, screen: pyte.Screen, stream: pyte.ByteStream
) -> list[Frame]:
    """The screens of a command, each with the time for which it was shown."""
    words = shlex.split(command.replace(SHOWN_URL, database.jdbc_url), comments=True)
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.environ["SHOP_PASSWORD"] = database.password
        # A Python finds its packages by its path.
        os.execv(BIN / words[0], [str(BIN / words[0]), *words[1:]])
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    frames: list[Frame] = []
    shown, since = _lines(screen), time.monotonic()
    while True:
        ready, _, _ = select.select([terminal], [], [], FRAME_SECONDS)
        try:
            read = os.read(terminal, 65536) if ready else b""
        except OSError:  # the command has ended
            break
        read = read.replace(os.path.realpath(folder).encode(), SHOWN_FOLDER.encode())
        stream.feed(read.replace(database.jdbc_url.encode(), SHOWN_URL.encode()))
        now, lines = time.monotonic(), _lines(screen)
        if lines != shown and now - since >= FRAME_SECONDS:
            frames.append(Frame(shown, now - since))
            shown, since = lines, now
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code:
        raise SystemExit(f"{command}: exit code {code}\n" + "\n".join(screen.display))
    return [*frames, Frame(_lines(screen), COMMAND_SECONDS)]


def _lines(screen: pyte.Screen) -> tuple[tuple[tuple[str, str], ...], ...]:
    """The screen's lines, each in parts of one colour."""
    lines = []
    for row in range(ROWS):
        parts: list[tuple[str, str]] = []
        for column in range(COLUMNS):
            cell = screen.buffer[row][column]
            if parts and parts[-1][0] == cell.fg:
                parts[-1] = (cell.fg, parts[-1][1] + cell.data)
            else:
                parts.append((cell.fg, cell.data))
        lines.append(tuple(parts))
    return tuple(lines)


def _svg(frames: list[Frame]) -> str:
    """All frames above each other; each is seen in its part of the whole time."""
    whole = sum(frame.seconds for frame in frames)
    width, height = round(COLUMNS * CHARACTER + 2 * MARGIN), ROWS * LINE + 2 * MARGIN
    styles, groups, begun = [], [], 0.0
    for number, frame in enumerate(frames):
        first, last = (round(100 * moment / whole, 3) for moment in (begun, begun + frame.seconds))
        begun += frame.seconds
        seen = "visibility:visible" if number == len(frames) - 1 else "visibility:hidden"
        styles.append(
            f"@keyframes f{number}{{0%{{visibility:hidden}}"
            f"{first}%{{visibility:visible}}{last}%{{{seen}}}}}"
            f"#f{number}{{animation:f{number} {whole:.1f}s step-end infinite;visibility:hidden}}"
        )
        groups.append(f'<g id="f{number}">{_text(frame)}</g>')
    font = f"font:{FONT}px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="A first run on PostgreSQL, the next one and a '
        'query, in a terminal">',
        f"<style>text{{{font}}}{''.join(styles)}</style>",
        '<rect width="100%" height="100%" rx="8" fill="#2e3440"/>',
        *groups,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _text(frame: Frame) -> str:
    spans = []
    for row, parts in enumerate(frame.lines):
        column = 0
        for colour, text in parts:
            if text.strip():
                place = f'x="{MARGIN + column * CHARACTER:.1f}" y="{MARGIN + FONT + row * LINE}"'
                length = f'textLength="{len(text.rstrip()) * CHARACTER:.1f}"'
                fill = COLOURS.get(
                    colour, COLOURS["default"] if not _is_hex(colour) else f"#{colour}"
                )
                spans.append(f'<text {place} {length} fill="{fill}">{escape(text.rstrip())}</text>')
            column += len(text)
    return "".join(spans)


def _is_hex(colour: str) -> bool:
    return len(colour) == 6 and all(each in "0123456789abcdef" for each in colour)


if __name__ == "__main__":
    main()
