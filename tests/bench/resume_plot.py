# SPDX-License-Identifier: LGPL-2.1-or-later
"""The plot of resume: an SVG with one panel for each moment.

It has a ground of its own, light or dark as the reader's pages are, so that it can be read on any.
"""

import math

from resume_report import MOMENTS, SIDES, Figures, size_text, versions

WIDTH, HEIGHT = 880, 360
LEFT, TOP, BOTTOM, GAP = 62, 64, 58, 26
NAMES = {"lazy": "torpor, lazy", "learnt": "lazy, with a working set", "eager": "torpor, eager",
         "stock": "stock QEMU, zstd -dc"}
STYLE = """
.ground { fill: #ffffff; }
text { font: 13px system-ui, "Helvetica Neue", Arial, sans-serif; fill: #24292f; }
.small { font-size: 11px; fill: #57606a; }
.title { font-weight: 600; }
.grid { stroke: #d0d7de; stroke-width: 1; }
.line { fill: none; stroke-width: 2.5; stroke-linejoin: round; }
.lazy { stroke: #0a7c3e; fill: #0a7c3e; }
.learnt { stroke: #a0206f; fill: #a0206f; }
.eager { stroke: #b35900; fill: #b35900; }
.stock { stroke: #5b6fb5; fill: #5b6fb5; }
.line.lazy, .line.learnt, .line.eager, .line.stock { fill: none; }
text.lazy, text.learnt, text.eager, text.stock { stroke: none; font-size: 11px; font-weight: 600; }
@media (prefers-color-scheme: dark) {
.ground { fill: #161b22; }
text { fill: #e6edf3; }
.small { fill: #9da7b1; }
.grid { stroke: #3a424b; }
.lazy { stroke: #4cd07d; fill: #4cd07d; }
.learnt { stroke: #f580c8; fill: #f580c8; }
.eager { stroke: #f0a04b; fill: #f0a04b; }
.stock { stroke: #9fb2ff; fill: #9fb2ff; }
}
"""


class Axis:
    """Seconds on a logarithmic scale of whole decades, from the top of a panel down."""

    def __init__(self, values):
        self.low = math.floor(math.log10(min(values)))
        self.high = max(math.ceil(math.log10(max(values))), self.low + 1)
        self.height = HEIGHT - TOP - BOTTOM

    def y(self, seconds):
        part = (math.log10(seconds) - self.low) / (self.high - self.low)
        return TOP + self.height * (1 - part)

    def decades(self):
        return [10 ** power for power in range(self.low, self.high + 1)]


def time_text(seconds):
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def text(x, y, words, kind="", anchor="middle"):
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def marker(side, x, y):
    """A shape for each side, so that colour is not needed to tell them apart."""
    if side == "lazy":
        return f'<circle class="lazy" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
    if side == "learnt":
        return (f'<path class="learnt" d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5Z"/>')
    if side == "eager":
        return f'<rect class="eager" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'
    return (f'<path class="stock" d="M{x:.1f} {y - 5:.1f}L{x + 5:.1f} {y + 4:.1f}'
            f'H{x - 5:.1f}Z"/>')


def series(figures, axis, side, moment, xs):
    points = [(x, axis.y(figures.median(mib, side, moment)))
              for x, mib in zip(xs, figures.sizes)]
    if len(points) > 1:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        yield f'<path class="line {side}" d="M{path}"/>'
    for x, y in points:
        yield marker(side, x, y)


def last_words(figures, axis, moment, x):
    """The figures of the largest guest; moved apart where they would overlap."""
    ends = sorted((axis.y(figures.median(figures.sizes[-1], side, moment)), side)
                  for side in SIDES)
    last = -math.inf
    for y, side in ends:
        y = max(y, last + 13)
        last = y
        seconds = figures.median(figures.sizes[-1], side, moment)
        yield text(x + 9, y + 4, time_text(seconds), side, "start")


def panel(figures, axis, moment, title, left, width):
    room = 58				# for the words behind the last point
    step = (width - room - 16) / max(len(figures.sizes) - 1, 1)
    xs = [left + 16 + step * number for number in range(len(figures.sizes))]
    yield text(left + (width - room / 2) / 2, TOP - 14, title, "title")
    for decade in axis.decades():
        y = axis.y(decade)
        yield f'<path class="grid" d="M{left:.1f} {y:.1f}h{width - room + 8:.1f}"/>'
    for x, mib in zip(xs, figures.sizes):
        yield text(x, HEIGHT - BOTTOM + 18, size_text(mib).replace("iB", ""), "small")
    for side in reversed(SIDES):
        yield from series(figures, axis, side, moment, xs)
    yield from last_words(figures, axis, moment, xs[-1])


def legend(figures, result):
    x = LEFT
    for side in SIDES:
        yield marker(side, x + 6, 20)
        yield text(x + 16, 24, NAMES[side], "", "start")
        x += 34 + 7 * len(NAMES[side])
    yield text(LEFT, HEIGHT - 12, f"From the command, by RAM; medians of {result['samples']}, "
               f"QEMU {figures.version} under TCG, image in the page cache, half of RAM content, "
               f"load {max(result['load']):.1f} on {result['machine']['cores']} cores",
               "small", "start")


def plot(result):
    figures = Figures(result, versions(result)[0], result["caches"][0])
    axis = Axis([figures.median(mib, side, moment) for mib in figures.sizes for side in SIDES
                 for moment, _ in MOMENTS])
    width = (WIDTH - LEFT - GAP * (len(MOMENTS) - 1)) / len(MOMENTS)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
             f'role="img" aria-label="Time to resume a guest, by its RAM">',
             f"<style>{STYLE}</style>",
             f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}" rx="8"/>']
    lines += legend(figures, result)
    for decade in axis.decades():
        lines.append(text(LEFT - 8, axis.y(decade) + 4, time_text(decade), "small", "end"))
    for number, (moment, title) in enumerate(MOMENTS):
        lines += panel(figures, axis, moment, title, LEFT + number * (width + GAP), width)
    return "\n".join(lines) + "\n</svg>\n"
