"""Bars of a run's figures: seconds, rows a second and peak memory, by case and shape of rows.

usage: plot_results.py RESULTS.json OUTPUT.svg; needs matplotlib, which `peers/plot.txt` pins.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
# The same figures make the same bytes.
mpl.rcParams.update({"svg.hashsalt": "benchmarks", "svg.fonttype": "none", "font.size": 9})

import matplotlib.pyplot as plt  # noqa: E402  (its backend is chosen above)

OURS, OTHERS = "#2a6f97", "#b8c4cc"
WHOLE = {"session", "idle", "idle-connect", "spark-increment", "increment", "increment-batches"}


def main() -> None:
    file, output = sys.argv[1:]
    kept = json.loads(Path(file).read_text())
    results: dict[str, dict[str, Any]] = kept["results"]
    shapes = [
        shape for shape in ("wide", "long") if any(name.startswith(f"{shape}-") for name in results)
    ]
    loads = [name for name in results if name not in WHOLE and name.split("-")[0] not in shapes]
    panels = [("Full load, rows/s", loads, rate), ("Full load, peak memory, MB", loads, peak)]
    panels += [
        (f"{shape} rows, rows/s", [n for n in results if n.startswith(f"{shape}-")], rate)
        for shape in shapes
    ]
    panels.append(("Idle and 1 % increment, seconds", [n for n in results if n in WHOLE], seconds))
    heights = [len(names) + 1 for _, names, _ in panels]
    figure, axes = plt.subplots(
        len(panels), 1, figsize=(8, 0.32 * sum(heights)), height_ratios=heights
    )
    for axis, (title, names, value) in zip(axes, panels, strict=True):
        draw(axis, title, names[::-1], [value(results[name]) for name in names[::-1]], results)
    figure.suptitle(f"{kept['machine']}, {kept['rows']:,} rows", x=0.01, ha="left")
    figure.tight_layout()
    figure.savefig(output, metadata={"Date": None})


def draw(
    axis: Any, title: str, names: list[str], values: list[float], results: dict[str, dict[str, Any]]
) -> None:
    titles = [results[name]["title"] for name in names]
    colours = [OURS if "ours" in text else OTHERS for text in titles]
    bars = axis.barh([text.replace("**", "") for text in titles], values, color=colours)
    axis.bar_label(
        bars, [f" {value:,.0f}" if value >= 100 else f" {value:.1f}" for value in values]
    )
    axis.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axis.spines[["top", "right", "bottom"]].set_visible(False)
    axis.set_xticks([])
    axis.margins(x=0.12)


def rate(result: dict[str, Any]) -> float:
    return float(result["rows"] / result["wall"])


def peak(result: dict[str, Any]) -> float:
    return float(result["peak"] / 1e6)


def seconds(result: dict[str, Any]) -> float:
    return float(result["wall"])


if __name__ == "__main__":
    main()
