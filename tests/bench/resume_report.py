# SPDX-License-Identifier: LGPL-2.1-or-later
"""The report of resume: tables in Markdown, and whether the goals are met."""

from benchlib import MIB

SIDES = ("lazy", "learnt", "eager", "stock")
MOMENTS = (("running", "guest runs"), ("output", "first output"), ("task", "64 MiB touched"),
           ("whole", "all memory in"))
GOAL_RUNNING = 0.150
GOAL_FLAT = 1.3
GOAL_OUTPUT = 10
GOAL_WHOLE = 2
STEP_SHOWN = 1.0			# milliseconds; shorter steps are added up


def size_text(mib):
    return f"{mib // 1024} GiB" if mib % 1024 == 0 else f"{mib} MiB"


class Figures:
    """The cells of one QEMU and one state of the cache."""

    def __init__(self, result, version, cache):
        self.result, self.version, self.cache = result, version, cache
        self.sizes = sorted(guest["ram-mib"] for guest in result["guests"]
                            if guest["qemu"] == version)

    def cell(self, mib, side):
        return self.result["cells"][f"{self.version} {mib} {side} {self.cache}"]

    def median(self, mib, side, moment):
        return self.cell(mib, side)[moment]["median"]


def versions(result):
    return list(dict.fromkeys(guest["qemu"] for guest in result["guests"]))


# ---------------------------------------------------------------- goals

def goals(figures):
    """Text, goal, figure, whether met."""
    small, large = figures.sizes[0], figures.sizes[-1]
    slowest = max(figures.median(mib, side, "running") for mib in figures.sizes
                  for side in ("lazy", "learnt"))
    yield ("command to running, the slowest size", f"< {1000 * GOAL_RUNNING:.0f} ms",
           f"{1000 * slowest:.0f} ms", slowest < GOAL_RUNNING)
    flat = figures.median(large, "lazy", "running") / figures.median(small, "lazy", "running")
    yield (f"command to running, {size_text(large)} against {size_text(small)}",
           f"<= {GOAL_FLAT} x", f"{flat:.2f} x", flat <= GOAL_FLAT)
    sooner = figures.median(large, "eager", "output") / figures.median(large, "lazy", "output")
    yield (f"first output at {size_text(large)}, against an eager restore",
           f">= {GOAL_OUTPUT} x sooner", f"{sooner:.1f} x", sooner >= GOAL_OUTPUT)
    longer = max(figures.median(mib, "lazy", "whole") / figures.median(mib, "eager", "whole")
                 for mib in figures.sizes)
    yield ("all memory in, against an eager restore, the worst size", f"<= {GOAL_WHOLE} x",
           f"{longer:.2f} x", longer <= GOAL_WHOLE)


def goal_lines(figures):
    yield f"| goal, QEMU {figures.version}, {figures.cache} | | measured | met |"
    yield "| --- | --- | --- | --- |"
    for text, goal, figure, met in goals(figures):
        yield f"| {text} | {goal} | {figure} | {'yes' if met else '**no**'} |"
    yield ""


# ---------------------------------------------------------------- tables

def time_text(summary):
    """Median and minimum."""
    return f"{1000 * summary['median']:.0f} ({1000 * summary['min']:.0f})"


def cell_lines(figures):
    heads = " | ".join(text for _, text in MOMENTS)
    yield f"| QEMU {figures.version}, {figures.cache} | | {heads} |"
    yield "| --- | --- |" + " ---: |" * len(MOMENTS)
    for mib in figures.sizes:
        for side in SIDES:
            cell = figures.cell(mib, side)
            times = " | ".join(time_text(cell[moment]) for moment, _ in MOMENTS)
            head = size_text(mib) if side == SIDES[0] else ""
            yield f"| {head} | {side} | {times} |"
    yield ""


def step_lines(result, version):
    """Where the time of the lazy restores goes, warm and cold together."""
    guests = [guest for guest in result["guests"] if guest["qemu"] == version]
    names = dict.fromkeys(name for guest in guests for name in guest["steps"])
    shown = [name for name in names
             if max(guest["steps"].get(name, 0) for guest in guests) >= STEP_SHOWN]
    others = [sum(ms for name, ms in guest["steps"].items() if name not in shown)
              for guest in guests]
    heads = " | ".join(size_text(guest["ram-mib"]) for guest in guests)
    yield f"| step of a lazy restore, QEMU {version} | {heads} |"
    yield "| --- |" + " ---: |" * len(guests)
    for name in shown:
        times = " | ".join(f"{guest['steps'].get(name, 0):.0f}" for guest in guests)
        yield f"| {name} | {times} |"
    yield "| all others | " + " | ".join(f"{ms:.0f}" for ms in others) + " |"
    yield ""


def head_lines(result):
    m = result["machine"]
    yield (f"{m['cpu']}, {m['cores']} cores, {m['ram-mib']} MiB RAM, Linux {m['kernel']}, "
           f"{m['file-system']}, zstd {m['zstd']}; guests under TCG. Load average at the first "
           f"round {result['load'][0]:.1f}, after the last {result['load'][1]:.1f}.")
    yield (f"Milliseconds from the command or stock QEMU's start: median (minimum), "
           f"n = {result['samples']}.")
    images = ", ".join(f"{size_text(guest['ram-mib'])} {guest['image'] / MIB:.0f} of "
                       f"{guest['raw'] / MIB:.0f} MiB"
                       for guest in result["guests"] if guest["qemu"] == versions(result)[0])
    yield f"Images: {images}."
    yield ""


def report(result):
    yield from head_lines(result)
    for version in versions(result):
        for cache in result["caches"]:
            yield from cell_lines(Figures(result, version, cache))
    for version in versions(result):
        yield from step_lines(result, version)
    for version in versions(result):
        for cache in result["caches"]:
            yield from goal_lines(Figures(result, version, cache))
