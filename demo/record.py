"""Records the terminal of a real first run, and of the next one, as an animated SVG: `make recording`.

The picture has its own background, so it reads the same on a light and on a dark page.
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import sqlite3
import struct
import sys
import tempfile
import termios
import time
from contextlib import closing
from dataclasses import dataclass
from fcntl import ioctl
from html import escape
from pathlib import Path

import pyte

BIN = Path(sys.executable).parent
COLUMNS, ROWS = 118, 22
ORDERS = 800_000
FRAME_SECONDS = 1.5
# A run's quiet seconds are shortened to this, and the last screen is held so long.
LONGEST_SECONDS, HELD_SECONDS = 0.5, 6.0
FONT, LINE, CHARACTER, MARGIN = 14, 19, 8.43, 16
COLOURS = {"default": "#d8dee9", "green": "#a3be8c", "red": "#bf616a", "brown": "#ebcb8b", "blue": "#81a1c1"}
COMMANDS = (
    "spark-lake init --jdbc-url jdbc:sqlite:shop.db --bucket ./lake --pipeline shop "
    "--incremental-table orders:updated_at:timestamp",
    "spark-lake run",
    "spark-lake run   # the next day",
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
    with tempfile.TemporaryDirectory(prefix="recording-") as name:
        folder = Path(name)
        _fill(folder / "shop.db", 0, ORDERS)
        for command in COMMANDS:
            if command == COMMANDS[-1]:
                _fill(folder / "shop.db", ORDERS, ORDERS + 1200)
            stream.feed(f"\x1b[32m$\x1b[0m {command}\r\n".encode())
            frames += [Frame(_lines(screen), LONGEST_SECONDS), *_frames(command, folder, screen, stream)]
    frames.append(Frame(_lines(screen), HELD_SECONDS))
    file.write_text(_svg(frames), encoding="utf-8")


def _fill(path: Path, first: int, end: int) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        columns = "id integer primary key, customer text, amount decimal(12,2), updated_at timestamp"
        database.execute(f"create table if not exists orders ({columns})")
        database.execute("create index if not exists orders_updated_at on orders (updated_at)")
        rows = (
            (n, f"customer {n % 5000}", n % 9973 / 100, time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(1.7e9 + n)))
            for n in range(first, end)
        )
        database.executemany("insert into orders values (?, ?, ?, ?)", rows)


def _frames(command: str, folder: Path, screen: pyte.Screen, stream: pyte.ByteStream) -> list[Frame]:
    """The screens of a command, each with the time it stood."""
    words = command.partition("#")[0].split()
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execv(BIN / words[0], words)
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    frames: list[Frame] = []
    shown, since = _lines(screen), time.monotonic()
    while True:
        ready, _, _ = select.select([terminal], [], [], FRAME_SECONDS)
        try:
            read = os.read(terminal, 65536) if ready else b""
        except OSError:  # the command has ended
            break
        # The state, for programs, is left out of the picture, and so is where it was taken.
        kept = (line for line in read.splitlines(keepends=True) if not line.startswith(b'{"bookmarks"'))
        stream.feed(b"".join(kept).replace(str(folder).encode(), b"/srv/shop"))
        now, lines = time.monotonic(), _lines(screen)
        if lines != shown and now - since >= FRAME_SECONDS:
            frames.append(Frame(shown, min(now - since, LONGEST_SECONDS)))
            shown, since = lines, now
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if code:
        raise SystemExit(f"{command}: exit code {code}\n" + "\n".join(screen.display))
    return [*frames, Frame(_lines(screen), LONGEST_SECONDS)]


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
            f"@keyframes f{number}{{0%{{visibility:hidden}}{first}%{{visibility:visible}}{last}%{{{seen}}}}}"
            f"#f{number}{{animation:f{number} {whole:.1f}s step-end infinite;visibility:hidden}}"
        )
        groups.append(f'<g id="f{number}">{_text(frame)}</g>')
    font = f"font:{FONT}px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-label="A first run and the next one, in a terminal">',
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
                fill = COLOURS.get(colour, COLOURS["default"] if not _is_hex(colour) else f"#{colour}")
                spans.append(f'<text {place} {length} fill="{fill}">{escape(text.rstrip())}</text>')
            column += len(text)
    return "".join(spans)


def _is_hex(colour: str) -> bool:
    return len(colour) == 6 and all(each in "0123456789abcdef" for each in colour)


if __name__ == "__main__":
    main()
