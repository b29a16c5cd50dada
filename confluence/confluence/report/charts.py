"""Small charts as inline SVG: lines over steps, and histograms. No scripts, no assets.

Colours are CSS classes (`line-0`, `bar`, ...), so that a page decides them, also for dark screens.
Everything that is written is escaped.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from html import escape

WIDTH, HEIGHT = 480, 220
LEFT, RIGHT, TOP, BOTTOM = 58, 12, 10, 30  # margins of the plot
POINTS = 400  # most points of a line; more are averaged in runs
TICKS = 5  # about so many on an axis

Point = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Line:
    """One curve; values that are not finite leave a gap."""

    name: str
    points: Sequence[Point]  # x never falls


@dataclasses.dataclass(frozen=True)
class Axis:
    """Values from `low` to `high` along `start` to `end` in the picture."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """Where a value is drawn."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values between the ends: 1, 2 or 5 times a power of ten apart."""
        rough = (self.high - self.low) / TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [i * step for i in range(first, last + 1)]


def short(value: float) -> str:
    """A number in at most about six characters: 0.0123, 12.3, 1,235, 1.23M."""
    size = abs(value)
    if size >= 1e6:
        for scale, letter in ((1e9, "G"), (1e6, "M")):
            if size >= scale:
                return f"{value / scale:.3g}{letter}"
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if size == 0 or size >= 1e-4 else f"{value:.1e}"


def share(value: float) -> str:
    """A share in per cent."""
    return f"{100 * value:.3g} %"


def line_chart(
    title: str, lines: Sequence[Line], *, show: Callable[[float], str] = short,
    from_zero: bool = False,
) -> str:  # fmt: skip
    """Lines over steps; empty if no line has a point."""
    kept = [Line(line.name, [p for p in line.points if math.isfinite(p[1])]) for line in lines]
    kept = [line for line in kept if line.points]
    if not kept:
        return ""
    xs = [x for line in kept for x, _ in line.points]
    ys = [y for line in kept for _, y in line.points] + [0.0] * from_zero
    x_axis = _axis(min(xs), max(xs), LEFT, WIDTH - RIGHT)
    y_axis = _axis(min(ys), max(ys), HEIGHT - BOTTOM, TOP, margin=0.05)
    parts = [_y_grid(y_axis, show), _x_ticks(x_axis, "step")]
    for number, line in enumerate(kept):
        parts.append(_path(thinned(line.points), x_axis, y_axis, number))
    said = ", ".join(f"{line.name} {show(line.points[-1][1])}" for line in kept)
    return _figure(title, "".join(parts), said, kept if len(kept) > 1 else ())


def histogram(title: str, edges: Sequence[float], counts: Sequence[int], *, x_label: str) -> str:
    """Bars of equal width between neighbouring edges; empty if there are none."""
    if not counts or max(counts) == 0:
        return ""
    x_axis = Axis(0, len(counts), LEFT, WIDTH - RIGHT)
    y_axis = _axis(0, max(counts), HEIGHT - BOTTOM, TOP, margin=0.05)
    bars = []
    for i, count in enumerate(counts):
        left, right, top = x_axis.place(i), x_axis.place(i + 1), y_axis.place(count)
        said = f"{short(edges[i])} to {short(edges[i + 1])}: {count:,}"
        bars.append(
            f'<rect class="bar" x="{left + 0.5:.1f}" y="{top:.1f}"'
            f' width="{max(right - left - 1, 0.5):.1f}" height="{y_axis.start - top:.1f}">'
            f"<title>{escape(said)}</title></rect>"
        )
    every = max(1, math.ceil(len(edges) / 7))
    labels = "".join(
        _text(x_axis.place(i), HEIGHT - BOTTOM + 14, short(edges[i]), "middle")
        for i in range(0, len(edges), every)
    )
    label = _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 3, x_label, "middle")
    parts = [_y_grid(y_axis, short), *bars, labels, label]
    return _figure(title, "".join(parts), f"{sum(counts):,} in all", ())


def thinned(points: Sequence[Point]) -> list[Point]:
    """At most `POINTS` points: means of runs of equal length."""
    size = math.ceil(len(points) / POINTS)
    runs = [points[i : i + size] for i in range(0, len(points), size)]
    return [(sum(x for x, _ in run) / len(run), sum(y for _, y in run) / len(run)) for run in runs]


def _axis(low: float, high: float, start: float, end: float, margin: float = 0.0) -> Axis:
    """An axis of values that are maybe all the same."""
    spread = high - low
    if spread <= abs(high) * 1e-9:
        half = abs(high) / 2 or 0.5
        return Axis(low - half, high + half, start, end)
    more = margin * spread
    return Axis(low if low == 0 else low - more, high + more, start, end)


def _y_grid(axis: Axis, show: Callable[[float], str]) -> str:
    return "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{axis.place(tick):.1f}"'
        f' y2="{axis.place(tick):.1f}"/>' + _text(LEFT - 6, axis.place(tick) + 4, show(tick), "end")
        for tick in axis.ticks()
    )


def _x_ticks(axis: Axis, label: str) -> str:
    ticks = "".join(
        _text(axis.place(tick), HEIGHT - BOTTOM + 14, short(tick), "middle")
        for tick in axis.ticks()
        if tick == round(tick) or axis.high - axis.low < TICKS
    )
    return ticks + _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 3, label, "middle")


def _path(points: Sequence[Point], x_axis: Axis, y_axis: Axis, number: int) -> str:
    places = [(x_axis.place(x), y_axis.place(y)) for x, y in points]
    if len(places) == 1:
        x, y = places[0]
        return f'<circle class="dot-{number}" cx="{x:.1f}" cy="{y:.1f}" r="3"/>'
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline class="line-{number}" points="{drawn}"/>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _figure(title: str, body: str, said: str, legend: Sequence[Line]) -> str:
    keys = "".join(
        f' <span class="key-{number}">{escape(line.name)}</span>'
        for number, line in enumerate(legend)
    )
    label = escape(f"{title}: {said}")
    return (
        f"<figure><figcaption><b>{escape(title)}</b>{keys}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f"<title>{label}</title>{body}</svg></figure>"
    )
