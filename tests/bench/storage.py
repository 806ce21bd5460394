# SPDX-License-Identifier: LGPL-2.1-or-later
"""Frame size, level and threads of a memory image, and what a hibernation leaves in the page cache.

Streams: synthetic ones, whose pages hold text, or are random, text-like and zero in turn, and the
memory of a real guest after its boot. Each is saved by the mover's own code with every frame size
and level; the rounds take all of these in an order drawn anew. Sizes are against `zstd -LEVEL` of
the same stream as one file, in the same run. Page times are of data pages drawn at random: frame
by the index, decoded and verified, and the page found in it; every page is compared with the
stream.
"""

import argparse
import json
import os
import random
import subprocess
import time

import benchlib
import guestvm
import page_cache
from benchlib import MIB
from save_restore_sides import VM, Torpor, ask
from storage_report import report

FRAMES = (64, 128, 256, 512, 1024)	# KiB
LEVELS = (1, 3, 6, 9)
DEFAULT_FRAME = 256
SYNTHETIC = ("text", "mixed")
PROGRAM = os.path.join(guestvm.BUILD, "tests", "bench", "bench_storage")


class Guest(Torpor):
    """A guest that is booted once, for its memory and for the page cache."""

    def restore_cold(self):
        """From an image that is not in the page cache."""
        benchlib.chill(self.image)
        start = time.monotonic()
        self.client.command("vm-restore", name=VM, mode="eager", wait=True)
        return {"whole": time.monotonic() - start}

    def stream(self, path):
        """Its memory as QEMU sent it; the guest is hibernated then."""
        self.hibernate()
        with open(path, "wb") as file:
            subprocess.run(["zstd", "-q", "-dc", self.image], check=True, stdout=file)


# ---------------------------------------------------------------- frames and levels

def zstd_size(stream, level):
    argv = ["zstd", "-q", f"-{level}", "-T1", "-c", stream]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        size = sum(len(block) for block in iter(lambda: process.stdout.read(MIB), b""))
    if process.returncode:
        raise RuntimeError(f"zstd -{level} failed")
    return size


def save(stream, frame, level, threads, options):
    argv = [PROGRAM, "save", stream, str(frame), str(level), str(threads), options.dir,
            str(options.pages)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def cells():
    """Every frame size and level with two threads; with one the default size only."""
    return ([(frame, level, 2) for frame in FRAMES for level in LEVELS] +
            [(DEFAULT_FRAME, level, 1) for level in LEVELS])


def measure_stream(name, stream, options, say):
    result = {"raw": os.path.getsize(stream),
              "zstd": {level: zstd_size(stream, level) for level in LEVELS}}
    series = {cell: benchlib.Series() for cell in cells()}
    for number in range(options.runs):
        say(f"{name}: round {number + 1} of {options.runs}")
        for cell in random.sample(cells(), len(cells())):
            series[cell].add(**save(stream, *cell, options))
    result["cells"] = [{"frame": frame, "level": level, "threads": threads,
                        **series[frame, level, threads].summary()}
                       for frame, level, threads in cells()]
    return result


# ---------------------------------------------------------------- all of it

def end_vm(guest):
    try:
        guest.client.command("vm-quit", name=VM)
    except (ConnectionError, RuntimeError, OSError):
        pass
    guest.client.close()


def guest_part(folder, options, cgroup, say):
    """Leaves the guest's stream as a file in the folder; what came of the page cache, or None."""
    with benchlib.Daemon(folder) as daemon:
        if cgroup:
            cgroup.add(daemon.process.pid)
        guest = Guest(daemon, options)
        try:
            say("boot the guest")
            guest.boot()
            guest.stream(os.path.join(folder, "guest"))
            if not cgroup:
                say("no memory cgroup can be made here: the page cache is not measured")
                return None
            guest.restore_cold()
            ask(guest.console, f"fill {options.ram_mib // 2} random 1")
            return page_cache.measure(guest, cgroup, folder, say)
        finally:
            end_vm(guest)


def measure_guest(folder, options, say):
    cgroup = page_cache.Cgroup.make()
    try:
        return guest_part(folder, options, cgroup, say)
    finally:
        if cgroup:
            cgroup.remove()


def measure(folder, options, say):
    options.dir = folder
    machine = benchlib.machine(folder)
    result = {"machine": machine, "runs": options.runs, "pages": options.pages,
              "ram-mib": options.ram_mib,
              "cache": measure_guest(folder, options, say), "streams": {}}
    for name in SYNTHETIC:
        argv = [PROGRAM, "make", name, str(options.mib), os.path.join(folder, name)]
        subprocess.run(argv, check=True)
    for name in ("guest", *SYNTHETIC):
        result["streams"][name] = measure_stream(name, os.path.join(folder, name), options, say)
    result["machine"]["load-end"] = round(os.getloadavg()[0], 2)
    return result


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench storage", allow_abbrev=False)
    parser.add_argument("--runs", type=int, default=5, metavar="N")
    parser.add_argument("--size", default="128M", metavar="SIZE", help="of synthetic streams' RAM")
    parser.add_argument("--pages", type=int, default=2000, metavar="N", help="times of each image")
    parser.add_argument("--ram", default="1G", metavar="SIZE", help="of the guest")
    parser.add_argument("--qemu", default="10.0", choices=guestvm.VERSIONS)
    parser.add_argument("--dir", default="/tmp", help="where images are written")
    parser.add_argument("--json", metavar="FILE", help="all samples")
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    options = parser.parse_args()
    try:
        options.ram_mib = benchlib.parse_size(options.ram)
        options.mib = benchlib.parse_size(options.size)
    except ValueError as error:
        parser.error(str(error))
    if options.runs < 1 or options.pages < 1 or options.ram_mib < 256:
        parser.error("at least one run, one page and 256M of RAM")
    return options


if __name__ == "__main__":
    benchlib.run(parse_arguments(), measure, report)
