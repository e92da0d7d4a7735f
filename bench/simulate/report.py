"""The table and the plot."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import matplotlib as mpl

mpl.use("svg")
import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from pathlib import Path

    from .cluster import Score

TI = 1 << 40
COLUMNS = (
    "policy", "asked to grow", "satisfied", "in place", "p50", "p95", "p99", "moves", "sent", "sent a move",
    "moved twice", "gave up", "had to wait for a node",
)  # fmt: skip
COLOURS = {"ours": "#1f6f5c", "oldest first": "#c8862a", "random": "#8a6fb0", "none": "#8c8c8c"}


def row(name: str, score: Score) -> tuple[str, ...]:
    """Return one line of the table."""
    moves = score.moved.total()
    p50, p95, p99 = (_percentile(score.waits, which) for which in (50, 95, 99))
    twice = sum(1 for times in score.moved.values() if times > 1)
    satisfied, in_place = (f"{100 * count / score.asked:.1f} %" for count in (score.grown, score.in_place))
    return (
        name, f"{score.asked:,}", satisfied, in_place, f"{p50:.1f} s", f"{p95:.1f} s", f"{p99:.0f} s", f"{moves:,}",
        f"{score.sent / TI:.1f} TiB", f"{score.sent / moves / (1 << 30):.1f} GiB" if moves else "", f"{twice:,}",
        f"{score.reasons.total():,}", f"{len(score.unplaced):,}",
    )  # fmt: skip


def _percentile(samples: list[float], which: int) -> float:
    return statistics.quantiles(samples, n=100, method="inclusive")[which - 1]


def table(scores: dict[str, Score]) -> str:
    """Return the table as Markdown that can be read as it is."""
    rows = [COLUMNS, *(row(name, score) for name, score in scores.items())]
    widths = [max(len(line[index]) for line in rows) for index in range(len(COLUMNS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in rows
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def why(scores: dict[str, Score]) -> str:
    """Say why requests gave up."""
    lines = []
    for name, score in scores.items():
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in score.reasons.most_common(5) if count)
        lines.append(f"{name} gave up: {reasons or 'never'}")
    return "\n".join(lines)


def plot(scores: dict[str, Score], target: Path) -> None:
    """Draw how long it takes, and what it costs."""
    mpl.rcParams["svg.hashsalt"] = "elbowroom"
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), width_ratios=(3, 2), constrained_layout=True)
    for name, score in scores.items():
        waits = sorted(score.waits)
        shares = [100 * (index + 1) / score.asked for index in range(len(waits))]
        step = max(1, len(waits) // 1000)  # so many points show as much
        left.step([*waits[::step], 600.0], [*shares[::step], shares[-1]], where="post", label=name, color=COLOURS[name])
    left.set(
        xscale="log", xlim=(1, 600), ylim=(60, 100.5), xlabel="seconds after the request",
        ylabel="requests satisfied, %", title="How soon a VM has grown",
    )  # fmt: skip
    left.set_xticks([1, 3, 10, 30, 100, 300], labels=["1", "3", "10", "30", "100", "300"])
    left.grid(visible=True, alpha=0.3)
    left.legend(loc="lower right", frameon=False)
    moving = [name for name, score in scores.items() if score.moved]
    bars = right.barh(moving, [scores[name].sent / TI for name in moving], color=[COLOURS[name] for name in moving])
    right.bar_label(bars, [f"{scores[name].moved.total():,} moves" for name in moving], padding=3)
    right.margins(x=0.4)
    right.invert_yaxis()
    right.set(xlabel="TiB sent", title="What it costs")
    figure.savefig(target, metadata={"Date": None})
    plt.close(figure)
