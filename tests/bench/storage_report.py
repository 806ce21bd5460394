# SPDX-License-Identifier: LGPL-2.1-or-later
"""The report of storage: tables in Markdown."""

from benchlib import MIB

DEFAULT_FRAME, DEFAULT_LEVEL = 256, 1
GOAL_CACHE = 0.95


def find(stream, frame, level, threads=2):
    for cell in stream["cells"]:
        if (cell["frame"], cell["level"], cell["threads"]) == (frame, level, threads):
            return cell
    raise KeyError((frame, level, threads))


def axes(stream):
    return (sorted({cell["frame"] for cell in stream["cells"]}),
            sorted({cell["level"] for cell in stream["cells"]}))


def table(head, columns, rows):
    yield f"| {head} | " + " | ".join(columns) + " |"
    yield "| --- |" + " ---: |" * len(columns)
    for name, values in rows:
        yield f"| {name} | " + " | ".join(values) + " |"
    yield ""


def size_text(stream, frame, level):
    size = find(stream, frame, level)["bytes"]["median"]
    return f"{100 * (size / stream['zstd'][level] - 1):+.1f} %"


def page_text(stream, frame, level):
    cell = find(stream, frame, level)
    return f"{1e6 * cell['p50']['median']:.0f} / {1e6 * cell['p99']['median']:.0f}"


def speed(stream, frame, level, threads=2):
    return stream["raw"] / 1e6 / find(stream, frame, level, threads)["durable"]["median"]


def speed_text(stream, frame, level, threads=2):
    return f"{speed(stream, frame, level, threads):.0f}"


def grid(stream, text):
    frames, levels = axes(stream)
    for frame in frames:
        mark = " (default)" if frame == DEFAULT_FRAME else ""
        yield f"{frame} KiB{mark}", [text(stream, frame, level) for level in levels]


def stream_tables(name, stream):
    _, levels = axes(stream)
    columns = [f"level {level}" for level in levels]
    yield (f"### {name}: {stream['raw'] / 1e6:.0f} MB; `zstd` makes of it "
           + ", ".join(f"{stream['zstd'][level] / 1e6:.1f} MB at {level}" for level in levels))
    yield ""
    yield from table("size against `zstd -LEVEL`", columns, grid(stream, size_text))
    yield from table("page, microseconds, p50 / p99", columns, grid(stream, page_text))
    yield from table("saved, MB/s, 2 threads", columns, grid(stream, speed_text))
    rows = [(f"{threads} thread{'s' if threads > 1 else ''}",
             [speed_text(stream, DEFAULT_FRAME, level, threads) for level in levels])
            for threads in (1, 2)]
    yield from table(f"saved, MB/s, {DEFAULT_FRAME} KiB", columns, rows)


def cache_row(job):
    return [f"{job['seconds']:.1f}", f"{job['before']:.1%}", f"{job['after']:.1%}",
            "yes" if job["after"] >= GOAL_CACHE else "**no**"]


def cache_lines(cache, ram_mib):
    if not cache:
        yield "The page cache was not measured: no memory cgroup could be made."
        return
    yield (f"Page cache: a probe file of 1024 MiB, read once, in a cgroup without room for the "
           f"image beside it; guest of {ram_mib} MiB.")
    yield ""
    columns = ["seconds", "probe in the cache before", "after", f">= {GOAL_CACHE:.0%}"]
    yield from table("job", columns,
                     [(job, cache_row(cache[job])) for job in ("hibernate", "restore")])
    yield (f"Of the image itself ({cache['image']['bytes'] / MIB:.0f} MiB) "
           f"{cache['image']['resident']:.1%} stay in the cache.")
    yield ""


def report(result):
    m = result["machine"]
    yield (f"{m['cpu']}, {m['cores']} cores, {m['ram-mib']} MiB RAM, Linux {m['kernel']}, "
           f"{m['file-system']}, zstd {m['zstd']}; load {m['load']} at the start, {m['load-end']} "
           f"at the end. n = {result['runs']}, medians, order drawn anew in each round; "
           f"{result['pages']} pages of each image.")
    yield ""
    yield from cache_lines(result["cache"], result["ram-mib"])
    for name, stream in result["streams"].items():
        yield from stream_tables(name, stream)
