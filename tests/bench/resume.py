# SPDX-License-Identifier: LGPL-2.1-or-later
"""How soon a saved guest runs again: lazily, eagerly, and by stock QEMU.

A guest of each size is booted, half of its RAM filled with content (three quarters with random,
text-like and zero MiB in turn), and hibernated. From then on its image is restored over and over,
and only one QEMU lives at a time:

    lazy    vm-restore, mode lazy
    learnt  the same of an image made after a lazy restore, which knows what its guest touches first
    eager   vm-restore, mode eager
    stock   the same QEMU with the same arguments, -incoming exec:zstd -dc of the same image, cont

with the image in the page cache (warm), and put out of it (cold; what caches the host of a virtual
machine has is not known). Each round takes all sizes, sides and caches in an order drawn anew, as
what ran before has an effect. From the command, or stock QEMU's start, it is measured until

    running   QEMU's word that the guest runs (event RESUME, the answer to cont)
    output    the first byte on the guest's serial console; it writes a line each 20 ms
    task      the end of a task in the guest that reads 64 MiB of its memory, asked for at once
    whole     all memory is in

torpord's log tells where the time of its lazy restores goes.
"""

import argparse
import os
import random
import time

import benchlib
import guestvm
from resume_plot import plot
from resume_report import report
from resume_sides import SIDES, Saved, Steps, Stock

CACHES = ("warm", "cold")
DEFAULT_SIZES = "512M,2G,4G"


def name_of(version, ram_mib):
    return f"{ram_mib}-{version.replace('.', '-')}"


class Guest:
    """A guest of one size under one QEMU: its image, and both who restore it."""

    def __init__(self, daemon, version, ram_mib):
        self.version, self.ram_mib = version, ram_mib
        self.saved = Saved(daemon, argparse.Namespace(qemu=version, ram_mib=ram_mib),
                           name_of(version, ram_mib))
        self.stock = None

    def prepare(self, folder):
        self.saved.prepare()
        own = os.path.join(folder, "stock-" + self.saved.vm)
        os.mkdir(own)
        self.stock = Stock(own, self.saved)

    def sample(self, side, cache):
        image = self.saved.image_of(side)
        (benchlib.warm if cache == "warm" else benchlib.chill)(image.file)
        if side == "stock":
            return self.stock.resume(image.file)
        return self.saved.resume(side)

    def facts(self):
        return {"qemu": self.version, "ram-mib": self.ram_mib,
                "image": os.path.getsize(self.saved.first.file), "raw": self.saved.first.raw}

    def end(self):
        if self.stock:
            self.stock.kill()
        self.saved.end()


def cell_name(guest, side, cache):
    return f"{guest.version} {guest.ram_mib} {side} {cache}"


def rounds(guests, options, say):
    """All rounds, or those that begin within the minutes; the samples, and how many of each."""
    cells = [(guest, side, cache) for guest in guests for side in SIDES
             for cache in options.caches]
    series = {cell_name(*cell): benchlib.Series() for cell in cells}
    start = time.monotonic()
    for number in range(options.samples):
        if number and options.minutes and time.monotonic() - start > 60 * options.minutes:
            return series, number
        for guest, side, cache in random.sample(cells, len(cells)):
            figures = guest.sample(side, cache)
            series[cell_name(guest, side, cache)].add(**figures)
            words = ", ".join(f"{what} {figures[what]:.3f}"
                              for what in ("running", "output", "task", "whole"))
            say(f"round {number + 1} of {options.samples}: {cell_name(guest, side, cache)}: "
                f"{words}")
    return series, options.samples


def measure(folder, options, say):
    machine = benchlib.machine(folder)
    loads = benchlib.Series()
    guests = []
    with benchlib.Daemon(folder, "--log-level", "debug") as daemon:
        try:
            for version in options.versions:
                for ram_mib in options.sizes_mib:
                    say(f"prepare a guest of {ram_mib} MiB, QEMU {version}")
                    guests.append(Guest(daemon, version, ram_mib))
                    guests[-1].prepare(folder)
            loads.add(load=os.getloadavg()[0])
            series, samples = rounds(guests, options, say)
            loads.add(load=os.getloadavg()[0])
            steps = Steps(daemon.log)
            facts = [dict(guest.facts(), steps=steps.of(guest.saved)) for guest in guests]
            for guest in guests:
                say(f"whether a guest of {guest.ram_mib} MiB, QEMU {guest.version}, is whole")
                guest.saved.verify()
        finally:
            for guest in guests:
                guest.end()
    return {"machine": machine, "samples": samples, "caches": options.caches,
            "load": loads.samples["load"], "guests": facts,
            "cells": {name: one.summary() for name, one in series.items()}}


def words(text, known, what):
    chosen = text.split(",")
    for word in chosen:
        if word not in known:
            raise ValueError(f"'{word}' is no {what}: {', '.join(known)}")
    return chosen


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench resume", allow_abbrev=False)
    parser.add_argument("--samples", type=int, default=7, metavar="N")
    parser.add_argument("--sizes", default=DEFAULT_SIZES, metavar="SIZE,...")
    parser.add_argument("--qemu", default="10.0,7.2", metavar="VERSION,...")
    parser.add_argument("--cache", default="warm,cold", metavar="STATE,...")
    parser.add_argument("--minutes", type=float, metavar="N", help="no round begins later")
    parser.add_argument("--plot", metavar="FILE", help="an SVG of the first QEMU's warm restores")
    parser.add_argument("--dir", default="/tmp", help="where images are written")
    parser.add_argument("--json", metavar="FILE", help="all samples")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    options = parser.parse_args()
    try:
        options.sizes_mib = [benchlib.parse_size(size) for size in options.sizes.split(",")]
        options.versions = words(options.qemu, guestvm.VERSIONS, "QEMU")
        options.caches = words(options.cache, CACHES, "state of the cache")
    except ValueError as error:
        parser.error(str(error))
    if options.samples < 1 or min(options.sizes_mib) < 256:
        parser.error("at least one sample, and 256M of RAM")
    return options


def main():
    options = parse_arguments()
    result = benchlib.run(options, measure, report)
    if options.plot:
        with open(options.plot, "w", encoding="utf-8") as file:
            file.write(plot(result))


if __name__ == "__main__":
    main()
