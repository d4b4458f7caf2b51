"""Tables of measurements: printed and saved, so that two runs can be compared."""

from __future__ import annotations

import json
import platform
import re
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement: seconds at the median and the 95th percentile, and the ratio to a baseline of the same run."""

    name: str
    p50: float
    p95: float
    ratio: float | None = None
    against: str = ""


def time_calls(call: Callable[[], object], count: int) -> list[float]:
    """Return the durations of `count` calls."""
    taken: list[float] = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return taken


def summarise(name: str, taken: Sequence[float], baseline: Row | None = None) -> Row:
    """Return a row of the table."""
    ordered = sorted(taken)
    p50 = statistics.median(ordered)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return Row(name, p50, p95, p50 / baseline.p50 if baseline else None, baseline.name if baseline else "")


def report(title: str, rows: Sequence[Row]) -> None:
    """Print the rows and save them in bench/results."""
    print(f"\n{title}  ({platform.python_version()}, {platform.machine()})")  # noqa: T201 - this is the output
    for row in rows:
        ratio = f"{row.ratio:6.2f} × {row.against}" if row.ratio is not None else ""
        print(f"  {row.name:<44} p50 {row.p50 * 1000:9.3f} ms   p95 {row.p95 * 1000:9.3f} ms   {ratio}")  # noqa: T201
    RESULTS.mkdir(exist_ok=True)
    saved = {"title": title, "at": time.time(), "rows": [asdict(row) for row in rows]}
    (RESULTS / f"{file_name(title)}.json").write_text(json.dumps(saved, indent=2), encoding="utf-8")


def file_name(title: str) -> str:
    """Return the first word of a title as a file name."""
    return re.sub(r"\W", "", title.split()[0]).lower()
