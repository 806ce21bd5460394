# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the benchmarks share: torpord and its client, figures of processes, medians, the machine."""

import json
import os
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests", "guest"))

import guestvm  # noqa: E402  (its folder has just been added to the path)

MIB = 1 << 20
WATCH_SECONDS = 0.002


class Client:
    """A connection to torpord. Events are dropped."""

    def __init__(self, path, seconds=20):
        self.sock = guestvm.connect(path, time.monotonic() + seconds)
        self.lines = guestvm.Lines(self.sock)
        self.count = 0
        self.message(time.monotonic() + seconds)
        self.command("qmp_capabilities")

    def close(self):
        self.sock.close()

    def message(self, deadline):
        line = self.lines.next(deadline)
        if line is None:
            raise ConnectionError("torpord closed the connection")
        return json.loads(line)

    def command(self, verb, /, seconds=300, **arguments):
        self.count += 1
        arguments = {key.replace("_", "-"): value for key, value in arguments.items()}
        request = {"execute": verb, "arguments": arguments, "id": self.count}
        self.sock.sendall(json.dumps(request).encode())
        deadline = time.monotonic() + seconds
        while True:
            message = self.message(deadline)
            if message.get("id") == self.count:
                if "error" in message:
                    raise RuntimeError(f"{verb}: {message['error']['desc']}")
                return message["return"]


class Daemon:
    """torpord with all its folders in one. Use it in a with statement."""

    def __init__(self, folder, *arguments):
        self.folder = folder
        self.arguments = arguments
        self.pool = os.path.join(folder, "pool")
        self.runtime = os.path.join(folder, "run")
        self.socket = os.path.join(self.runtime, "torpor.sock")
        self.log = os.path.join(folder, "torpord.log")
        self.process = None

    def __enter__(self):
        argv = [os.path.join(guestvm.BUILD, "torpord"), "--socket", self.socket,
                "--state-dir", os.path.join(self.folder, "state"),
                "--runtime-dir", self.runtime, "--pool", f"default={self.pool}",
                *self.arguments]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        else:
            say(f"torpord ended before its time, status {self.process.returncode}")
        self.process.wait()

    def image(self, vm, image_id):
        return os.path.join(self.pool, vm, image_id, "memory.zst")


# ---------------------------------------------------------------- processes

def proc_status(pid):
    """The figures in kB of /proc/PID/status, in bytes, and the name; {} if it is gone."""
    figures = {}
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key == "Name":
                    figures[key] = value.strip()
                elif value.endswith(" kB\n"):
                    figures[key] = int(value.split()[0]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return figures


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode("utf-8", "replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []


class Watch(threading.Thread):
    """The largest VmHWM of a process with that command line, seen while it ran.

    It costs CPU: not while time is measured.
    """

    def __init__(self, *argv):
        super().__init__(daemon=True)
        self.argv = list(argv)
        self.peak = 0
        self.over = threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()

    def run(self):
        others = set(os.listdir("/proc"))
        while not self.over.wait(WATCH_SECONDS):
            for pid in set(os.listdir("/proc")) - others:
                if command_line(pid) == self.argv:
                    self.peak = max(self.peak, proc_status(pid).get("VmHWM", 0))


def busy_seconds():
    """CPU time that the whole machine has spent so far, idle and waiting left out."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(word) for word in file.readline().split()[1:]]
    return (sum(ticks[:8]) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")


# ---------------------------------------------------------------- figures

class Series:
    """Samples by name, in the order in which the names appeared."""

    def __init__(self):
        self.samples = {}

    def add(self, **figures):
        for name, value in figures.items():
            self.samples.setdefault(name, []).append(value)

    def median(self, name):
        return statistics.median(self.samples[name])

    def summary(self):
        return {name: {"median": statistics.median(values), "min": min(values),
                       "max": max(values), "samples": values}
                for name, values in self.samples.items()}


def warm(path):
    """Have a file in the page cache, and nothing of anybody waiting to be written."""
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(MIB)
        while file.readinto(buffer):
            pass
    os.sync()


def chill(path):
    """Have a file out of the page cache."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def cpu_model():
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def machine(folder):
    """What a reader needs to judge the figures."""
    kind = subprocess.run(["df", "--output=fstype", folder], check=True, capture_output=True,
                          text=True).stdout.split()[-1]
    zstd = subprocess.run(["zstd", "-q", "--version"], check=True, capture_output=True,
                          text=True).stdout
    return {
        "cpu": cpu_model(), "cores": len(os.sched_getaffinity(0)),
        "ram-mib": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MIB,
        "kernel": platform.release(), "file-system": kind,
        "zstd": zstd.strip().lstrip("v"), "load": round(os.getloadavg()[0], 2),
    }


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            sys.exit(f"bench: {program} not found; scripts/deps run installs what is needed")


def parse_size(text):
    """'1G', '512M' or a number of MiB, in MiB."""
    unit = {"G": 1024, "M": 1}.get(text[-1:].upper())
    number = text[:-1] if unit else text
    if not number.isdigit() or int(number) == 0:
        raise ValueError(f"'{text}' is no size such as 512M or 1G")
    return int(number) * (unit or 1)


def connect_console(path):
    """Drained by a thread of its own until close_console()."""
    return guestvm.Console(guestvm.connect(path, time.monotonic() + 20))


def close_console(console):
    console.sock.shutdown(socket.SHUT_RDWR)
    console.join()
    console.sock.close()


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def show_logs(folder):
    """The last lines of the logs in a folder that is about to be removed."""
    for name in sorted(os.listdir(folder)):
        if name.endswith(".log"):
            with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
                for line in file.readlines()[-10:]:
                    print(f"{name}: {line}", end="", file=sys.stderr)


def run(options, measure, report):
    """measure(folder, options, say) in a folder of its own, its report on stdout, its samples by --json.

    Returns the result.
    """
    need("zstd")
    # So that a terminated run, too, leaves no QEMU behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = tempfile.mkdtemp(prefix="torpor-bench.", dir=options.dir)
    try:
        result = measure(folder, options, (lambda text: None) if options.quiet else say)
    except Exception:
        show_logs(folder)
        raise
    finally:
        shutil.rmtree(folder)
    for line in report(result):
        print(line)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    return result
