# SPDX-License-Identifier: LGPL-2.1-or-later
"""The report of save-restore: tables in Markdown, and whether the goals are met."""

from benchlib import MIB

CYCLES = ("torpor", "zstd", "plain")
GOAL_SPEED = 1.3
GOAL_SIZE = 2.5				# per cent
GOAL_DAEMON = 16 * MIB


def mover_goal(ram_mib):
    return 32 * MIB + 1.1 * MIB * ram_mib / 1024


def goals(result):
    """Text, goal, figure, whether met."""
    save = {kind: {name: s["median"] for name, s in result["save"][kind].items()}
            for kind in CYCLES}
    speed = save["zstd"]["durable"] / save["torpor"]["whole"]
    size = 100 * (save["torpor"]["bytes"] / save["zstd"]["bytes"] - 1)
    mover, limit = max(result["mover"].values()), mover_goal(result["ram-mib"])
    daemon = max(figures["VmRSS"] for figures in result["torpord"].values())
    return [
        ("whole hibernation, against the pipe into zstd with fsync",
         f">= {GOAL_SPEED} x as fast", f"{speed:.2f} x", speed >= GOAL_SPEED),
        ("image, against zstd's file", f"within {GOAL_SIZE} %", f"{size:+.2f} %",
         size <= GOAL_SIZE),
        ("mover's largest resident set", f"<= {limit / MIB:.1f} MiB", f"{mover / MIB:.1f} MiB",
         mover <= limit),
        ("torpord's resident set, one VM", f"<= {GOAL_DAEMON // MIB} MiB",
         f"{daemon / MIB:.1f} MiB", daemon <= GOAL_DAEMON),
    ]


SAVE_ROWS = (
    ("torpor", "whole", "torpor: hibernated, QEMU gone"),
    ("torpor", "durable", "torpor: image durable"),
    ("torpor", "pause", "torpor: guest stands still until the image is durable"),
    ("zstd", "written", "`zstd -1 -T2` in a pipe: zstd ended"),
    ("zstd", "durable", "`zstd -1 -T2` in a pipe: and fsync"),
    ("zstd", "whole", "`zstd -1 -T2` in a pipe: and QEMU gone"),
    ("plain", "written", "not compressed: written"),
    ("plain", "durable", "not compressed: and fsync"),
    ("plain", "whole", "not compressed: and QEMU gone"),
)
RESTORE_ROWS = (
    ("torpor", "running", "torpor: guest runs"),
    ("torpor", "whole", "torpor: operation done (clock set, image deleted)"),
    ("zstd", "running", "`zstd -dc` in a pipe: guest runs"),
    ("plain", "running", "not compressed: guest runs"),
)


def rows(figures, wanted, base):
    for kind, name, text in wanted:
        s = figures[kind][name]
        yield (f"| {text} | {s['median']:.3f} s | {s['min']:.3f} .. {s['max']:.3f} "
               f"| {s['median'] / base:.2f} x |")


def phase_words(summary):
    parts = [f"{name[6:]} {1000 * s['median']:.0f}" for name, s in summary.items()
             if name.startswith("phase ")]
    return ", ".join(parts)


def size_words(result):
    sizes = {kind: result["save"][kind]["bytes"]["median"] for kind in CYCLES}
    return ", ".join(f"{text} {sizes[kind] / 1e6:.1f} MB" for kind, text in
                     (("torpor", "torpor"), ("zstd", "zstd"), ("plain", "not compressed")))


def cpu_words(figures):
    return ", ".join(f"{kind} {figures[kind]['cpu']['median']:.2f}" for kind in CYCLES)


def report(result):
    m = result["machine"]
    yield (f"Guest of {result['ram-mib']} MiB under TCG, half of it filled with random, text and "
           f"zero MiB in turn; n = {result['runs']}, medians, order drawn anew in each round.")
    yield (f"{m['cpu']}, {m['cores']} cores, {m['ram-mib']} MiB RAM, Linux {m['kernel']}, "
           f"{m['file-system']}, QEMU {m['qemu']}, zstd {m['zstd']}; load at the start "
           f"{m['load']}.")
    yield ""
    for title, key, wanted, column in (("save", "save", SAVE_ROWS, "whole"),
                                       ("eager restore", "restore", RESTORE_ROWS, "running")):
        yield f"| {title} | median | min .. max | time against torpor |"
        yield "| --- | --- | --- | --- |"
        yield from rows(result[key], wanted, result[key]["torpor"][column]["median"])
        yield ""
    yield f"Sizes: {size_words(result)}."
    yield f"Phases of the hibernation, ms: {phase_words(result['save']['torpor'])}."
    yield f"Phases of the restore, ms: {phase_words(result['restore']['torpor'])}."
    yield f"CPU seconds of the whole machine while saving: {cpu_words(result['save'])}."
    yield (f"Largest resident set of the mover: save {result['mover']['save'] / MIB:.1f} MiB, load "
           f"{result['mover']['load'] / MIB:.1f} MiB. torpord: idle "
           f"{result['torpord']['idle']['VmRSS'] / MIB:.1f} MiB, after the cycles "
           f"{result['torpord']['after']['VmRSS'] / MIB:.1f} MiB (of it anonymous "
           f"{result['torpord']['after']['RssAnon'] / MIB:.1f} MiB).")
    yield ""
    yield "| goal | | measured | met |"
    yield "| --- | --- | --- | --- |"
    for text, goal, figure, met in goals(result):
        yield f"| {text} | {goal} | {figure} | {'yes' if met else '**no**'} |"
