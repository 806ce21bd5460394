# SPDX-License-Identifier: LGPL-2.1-or-later
"""torpord as a process, and the processes below this one."""

import ctypes
import os
import re
import signal
import subprocess
import time

from .base import Failure, poll

PR_SET_CHILD_SUBREAPER = 36
BAD_LOG = re.compile(r"(ERROR: (Address|Leak)Sanitizer|SUMMARY: \w+Sanitizer|runtime error:|"
                     r"[Aa]ssertion.*failed)")


def become_subreaper():
    """Orphans below this process become its children, so none of them is lost sight of."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def parents():
    """{pid: (parent, state, name)} of all processes."""
    table = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as file:
                    text = file.read()
            except OSError:
                continue
            name = text[text.index("(") + 1:text.rindex(")")]
            state, parent = text[text.rindex(")") + 2:].split()[:2]
            table[int(entry)] = (int(parent), state, name)
    return table


def descendants(pid):
    """{pid: name} of the living processes below pid."""
    table = parents()
    children = {}
    for child, (parent, _, _) in table.items():
        children.setdefault(parent, []).append(child)
    found, todo = {}, [pid]
    while todo:
        for child in children.get(todo.pop(), []):
            todo.append(child)
            if table[child][1] not in "ZX":
                found[child] = table[child][2]
    return found


def kill_descendants(pid, seconds=5):
    """Kills what is below pid until nothing is left; returns the names of what was there."""
    names = []
    end = time.monotonic() + seconds
    while True:
        left = descendants(pid)
        if not left or time.monotonic() > end:
            return names
        for child, name in left.items():
            if name not in names:
                names.append(name)
            try:
                os.kill(child, signal.SIGKILL)
            except ProcessLookupError:
                pass
        reap()
        time.sleep(0.01)


def reap(keep=()):
    """Takes the exit statuses of orphans that came to us; `keep` are children of subprocess."""
    for pid, (parent, state, _) in parents().items():
        if parent == os.getpid() and state == "Z" and pid not in keep:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass


def alive(pid):
    """Whether a process exists and is no zombie."""
    entry = parents().get(pid)
    return entry is not None and entry[1] not in "ZX"


class Daemon:
    """torpord in its own folders below `dir`: state, run, pool, its log in torpord.log."""

    def __init__(self, build, folder, env=None, args=(), pools=None, config=None):
        self.program = os.path.join(build, "torpord")
        self.dir = folder
        self.state = os.path.join(folder, "state")
        self.run = os.path.join(folder, "run")
        self.pool = os.path.join(folder, "pool")
        self.socket = os.path.join(folder, "run", "torpor.sock")
        self.log_path = os.path.join(folder, "torpord.log")
        self.pools = pools or {"default": self.pool}
        self.args = list(args)
        self.env = env or {}
        self.config = config
        self.process = None
        self.expected_death = False

    def command(self):
        command = [self.program, "--socket", self.socket, "--state-dir", self.state,
                   "--runtime-dir", self.run, "--log-level", "debug"]
        for name, path in self.pools.items():
            command += ["--pool", f"{name}={path}"]
        if self.config:
            command += ["--config", self.config]
        return command + self.args

    def start(self, env=None, seconds=20):
        """Starts it and waits until its socket answers."""
        environment = dict(os.environ, TMPDIR=os.path.join(self.dir, "tmp"))
        environment.setdefault("ASAN_OPTIONS", "detect_leaks=1:exitcode=77")
        environment.setdefault("UBSAN_OPTIONS", "print_stacktrace=1")
        environment.update(self.env)
        environment.update(env or {})
        os.makedirs(environment["TMPDIR"], exist_ok=True)
        os.makedirs(self.run, exist_ok=True)
        mark = f"--- torpord starts {time.monotonic()} ---\n"
        with open(self.log_path, "a", encoding="utf-8") as log:
            log.write(mark)
            log.flush()
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env=environment)

        def listening():
            if self.process.poll() is not None:
                raise Failure(f"torpord ended with {self.process.returncode} at its start:\n"
                              + self.log()[-2000:])
            return "is ready" in self.log().rsplit(mark, 1)[1]

        poll(listening, seconds, "torpord ready")
        return self

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def descriptors(self):
        """What its descriptors are open on, sorted."""
        found = []
        folder = f"/proc/{self.pid}/fd"
        for entry in os.listdir(folder):
            try:
                found.append(re.sub(r":\[\d+\]$", "", os.readlink(os.path.join(folder, entry))))
            except OSError:
                pass
        return sorted(found)

    def rss(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as file:
            return int(re.search(r"VmRSS:\s+(\d+) kB", file.read()).group(1)) * 1024

    def running(self):
        return self.process is not None and self.process.poll() is None

    def stop(self, seconds=40):
        """An orderly end; fails if it is not one."""
        if not self.running():
            self.check_death()
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Failure(f"torpord did not end within {seconds} s of SIGTERM") from None
        if status != 0:
            raise Failure(f"torpord ended with status {status}:\n{self.log()[-3000:]}")

    def kill(self):
        """kill -9."""
        self.expected_death = True
        self.process.kill()
        self.process.wait()

    def check_death(self):
        """Fails if it has ended without having been told to."""
        if self.process is not None and self.process.poll() is not None:
            if not self.expected_death and self.process.returncode != 0:
                raise Failure(f"torpord died with status {self.process.returncode}")

    def restart(self, kill=False, env=None):
        if kill:
            self.kill()
        else:
            self.stop()
        self.expected_death = False
        return self.start(env)

    def bad_log(self):
        """A sanitizer's report in the log, or None."""
        log = self.log() if os.path.exists(self.log_path) else ""
        found = BAD_LOG.search(log)
        return log[found.start():found.start() + 3000] if found else None
