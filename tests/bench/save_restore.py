# SPDX-License-Identifier: LGPL-2.1-or-later
"""Speed, size and memory of hibernate and eager restore, against stock QEMU and zstd.

One guest is booted and filled by torpor and hibernated; stock QEMU loads that same image
(`zstd -dc`), with the same arguments and a copy of the disk, so both sides hold the same memory.
From then on only one QEMU lives at a time. A cycle restores a guest, lets it run for a second,
saves it again and ends QEMU:

    torpor    vm-restore, vm-hibernate
    zstd      -incoming exec:zstd -dc; stop, migrate fd: of a pipe into zstd -1 -T2, fsync
    plain     -incoming fd: of a file; stop, migrate fd: of a file, fsync

Each round runs the three in an order drawn anew. Before each measured part the image is in the
page cache and nothing waits to be written. Memory is watched in one more torpor cycle, so that the
watching does not slow down what is timed.
"""

import argparse
import random

import benchlib
import guestvm
from save_restore_report import CYCLES, report
from save_restore_sides import VM, Stock, Torpor, ask, settle


def watch_memory(torpor):
    """The mover's largest resident set while it loads and while it saves."""
    peak = {}
    for job, run in (("load", torpor.restore), ("save", torpor.hibernate)):
        with benchlib.Watch("torpor-mover", job) as watch:
            run()
        if not watch.peak:
            raise RuntimeError(f"no mover was seen in a {job}")
        peak[job] = watch.peak
        if job == "load":
            settle(torpor.console)
    return peak


def rounds(torpor, stock, runs, say):
    save = {kind: benchlib.Series() for kind in CYCLES}
    restore = {kind: benchlib.Series() for kind in CYCLES}
    for number in range(runs):
        for kind in random.sample(CYCLES, len(CYCLES)):
            say(f"round {number + 1} of {runs}: {kind}")
            if kind == "torpor":
                torpor.cycle(save[kind], restore[kind])
            else:
                stock.cycle(kind, save[kind], restore[kind])
    return save, restore


def measure(folder, options, say):
    machine = benchlib.machine(folder)
    stock = None
    with benchlib.Daemon(folder) as daemon:
        torpor = Torpor(daemon, options)
        try:
            say("prepare the guest")
            memory = {"idle": torpor.prepare()}
            torpor.hibernate()
            say("prepare stock QEMU's states from torpor's image")
            stock = Stock(folder, torpor)
            stock.prepare(torpor.image)
            save, restore = rounds(torpor, stock, options.runs, say)
            say("memory, and whether the guests are whole")
            mover = watch_memory(torpor)
            torpor.restore()
            memory["after"] = torpor.memory()
            machine["qemu"] = torpor.query()["qemu-version"]
            ask(torpor.console, "verify")
            torpor.client.command("vm-quit", name=VM)
            stock.verify()
        finally:
            if stock:
                stock.kill()
            end_vm(torpor)
    return {"machine": machine, "runs": options.runs, "ram-mib": options.ram_mib,
            "save": {kind: series.summary() for kind, series in save.items()},
            "restore": {kind: series.summary() for kind, series in restore.items()},
            "mover": mover, "torpord": memory}


def end_vm(torpor):
    """QEMU outlives its daemon, so it is ended first, whatever happened."""
    try:
        if torpor.query()["pid"]:
            torpor.client.command("vm-quit", name=VM)
    except (ConnectionError, RuntimeError, OSError):
        pass
    torpor.client.close()


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench save-restore", allow_abbrev=False)
    parser.add_argument("--runs", type=int, default=5, metavar="N")
    parser.add_argument("--ram", default="1G", metavar="SIZE")
    parser.add_argument("--qemu", default="10.0", choices=guestvm.VERSIONS)
    parser.add_argument("--dir", default="/tmp", help="where images are written")
    parser.add_argument("--json", metavar="FILE", help="all samples")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    options = parser.parse_args()
    try:
        options.ram_mib = benchlib.parse_size(options.ram)
    except ValueError as error:
        parser.error(str(error))
    if options.runs < 1 or options.ram_mib < 128:
        parser.error("at least one run and 128M of RAM")
    return options


if __name__ == "__main__":
    benchlib.run(parse_arguments(), measure, report)
