"""Bar and line charts as SVG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

COLOURS = (
    "#9aa5b1", "#1f6feb", "#2da44e", "#bf8700", "#cf222e", "#8250df", "#d4a72c", "#57606a", "#0b7285", "#e8590c",
    "#5c940d", "#212529",
)  # fmt: skip
BAR, GAP, HEIGHT, LEFT, TOP = 22, 26, 220, 50, 40


def draw_bars(path: Path, title: str, series: Sequence[str], groups: Mapping[str, Sequence[float]]) -> None:
    """Draw a group of bars for each name, one for each series, from 0 to 1."""
    width = LEFT + len(groups) * (len(series) * BAR + GAP) + GAP
    parts = [f'<text x="{LEFT}" y="20" font-size="15">{escape(title)}</text>']
    for tenth in range(0, 11, 2):
        y = TOP + HEIGHT * (1 - tenth / 10)
        parts.append(f'<line x1="{LEFT}" x2="{width}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 30}" y="{y + 4}" font-size="11">{tenth / 10:.1f}</text>')
    for number, (name, values) in enumerate(groups.items()):
        start = LEFT + GAP + number * (len(series) * BAR + GAP)
        parts.append(f'<text x="{start}" y="{TOP + HEIGHT + 16}" font-size="11">{escape(name)}</text>')
        for place, value in enumerate(values):
            x, high = start + place * BAR, HEIGHT * value
            parts.append(
                f'<rect x="{x}" y="{TOP + HEIGHT - high:.1f}" width="{BAR - 3}" height="{high:.1f}" '
                f'fill="{COLOURS[place]}"><title>{value:.3f}</title></rect>'
            )
    for place, name in enumerate(series):
        x = LEFT + place * 190
        parts.append(f'<rect x="{x}" y="{TOP + HEIGHT + 28}" width="12" height="12" fill="{COLOURS[place]}"/>')
        parts.append(f'<text x="{x + 17}" y="{TOP + HEIGHT + 39}" font-size="12">{escape(name)}</text>')
    size = f'width="{max(width, LEFT + len(series) * 190)}" height="{TOP + HEIGHT + 55}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" style="background:#fff">'
    path.write_text("\n".join([head, *parts, "</svg>\n"]), encoding="utf-8")


def draw_lines(path: Path, title: str, series: Mapping[str, Sequence[tuple[float, float]]]) -> None:
    """Draw a line through the points of each series; `y` goes from 0 to 1."""
    width = 560
    low = min(x for points in series.values() for x, _ in points)
    high = max(x for points in series.values() for x, _ in points)
    parts = [f'<text x="{LEFT}" y="20" font-size="15">{escape(title)}</text>']
    for tenth in range(0, 11, 2):
        y = TOP + HEIGHT * (1 - tenth / 10)
        parts.append(f'<line x1="{LEFT}" x2="{LEFT + width}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 30}" y="{y + 4}" font-size="11">{tenth / 10:.1f}</text>')
        x = LEFT + width * tenth / 10
        parts.append(
            f'<text x="{x:.0f}" y="{TOP + HEIGHT + 16}" font-size="11">{low + (high - low) * tenth / 10:.2f}</text>'
        )
    for place, (name, points) in enumerate(series.items()):
        drawn = " ".join(
            f"{LEFT + width * (x - low) / (high - low):.1f},{TOP + HEIGHT * (1 - y):.1f}" for x, y in points
        )
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{COLOURS[place]}" stroke-width="2"/>')
        y = TOP + HEIGHT + 34 + 16 * place
        parts.append(f'<rect x="{LEFT}" y="{y}" width="12" height="12" fill="{COLOURS[place]}"/>')
        parts.append(f'<text x="{LEFT + 17}" y="{y + 11}" font-size="12">{escape(name)}</text>')
    size = f'width="{LEFT + width + 30}" height="{TOP + HEIGHT + 45 + 16 * len(series)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" style="background:#fff">'
    path.write_text("\n".join([head, *parts, "</svg>\n"]), encoding="utf-8")
