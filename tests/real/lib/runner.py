# SPDX-License-Identifier: LGPL-2.1-or-later
"""Runs scenarios, two at once, each in a process and a folder of its own."""

import argparse
import collections
import fnmatch
import glob
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

from .base import BUILD, Failure, Late, Skip, TOP, qemu_program
from .proc import become_subreaper, descendants, kill_descendants
from .scenario import DEADLINE, Scenario

REAL = os.path.join(TOP, "tests", "real")
PASSED, FAILED, SKIPPED = 0, 1, 2
GRACE = 45              # seconds from a scenario's deadline to its violent end
SAN_FACTOR = 2

Case = collections.namedtuple("Case", "name function tags deadline")


def parse(argv):
    parser = argparse.ArgumentParser(prog="tests/real/run", description=__doc__)
    parser.add_argument("--build", default=BUILD, help="where make put the programs")
    parser.add_argument("--san", action="store_true", help="the programs of make SAN=1")
    parser.add_argument("--faults", action="store_true", help="the programs of make FAULTS=1")
    parser.add_argument("--qemu", default="10.0", choices=("10.0", "7.2"))
    parser.add_argument("--machine", default="q35", choices=("q35", "pc"))
    parser.add_argument("--jobs", type=int, default=2, help="scenarios at once")
    parser.add_argument("-k", dest="pattern", default="", help="only names with this part")
    parser.add_argument("--tag", default="", help="only scenarios with this tag")
    parser.add_argument("--slow", action="store_true", help="also those marked slow")
    parser.add_argument("--list", action="store_true", help="print the names only")
    parser.add_argument("--keep", action="store_true", help="keep the folders of failed scenarios")
    parser.add_argument("--repeat", type=int, default=1, help="each so many times")
    options = parser.parse_args(argv)
    options.programs = os.path.abspath(options.build)
    if options.san:
        options.programs = os.path.join(options.programs, "san")
    if options.faults:
        options.programs = os.path.join(options.programs, "faults")
    return options


def discover(options):
    """The wanted scenarios, in the order of files and of their lines."""
    cases = []
    for path in sorted(glob.glob(os.path.join(REAL, "test_*.py"))):
        module = importlib.import_module(os.path.basename(path)[:-3])
        for name, function in list(vars(module).items()):
            if not name.startswith("test_") or not callable(function):
                continue
            full = f"{module.__name__[5:]}.{name[5:]}"
            tags = getattr(function, "tags", frozenset())
            wanted = options.pattern in full or fnmatch.fnmatch(full, options.pattern)
            if not wanted or (options.tag and options.tag not in tags):
                continue
            if ("slow" in tags and not options.slow) or ("faults" in tags and not options.faults):
                continue
            limit = getattr(function, "deadline", DEADLINE) * (SAN_FACTOR if options.san else 1)
            cases.append(Case(full, function, tags, limit))
    return cases


# --- in the child ---


def _late(*_):
    raise Late("the scenario's deadline passed")


def tail(path, count=60):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-count:])
    except OSError:
        return ""


def explain(folder):
    """The last lines of all logs, for a failed scenario's report."""
    for path in sorted(glob.glob(f"{folder}/*.log") + glob.glob(f"{folder}/*.console")
                       + glob.glob(f"{folder}/state/vms/*/qemu.log")):
        count = 12 if path.endswith(".console") else 60
        text = tail(path, count)
        if text:
            print(f"--- {os.path.relpath(path, folder)}\n{text}")


def run_case(case, options, folder, shared):
    """Runs one scenario in this process; its status."""
    become_subreaper()
    signal.signal(signal.SIGALRM, _late)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _late)
    signal.alarm(case.deadline)
    scenario = Scenario(options, folder, shared)
    status = FAILED
    try:
        case.function(scenario)
        status = PASSED
    except Skip as reason:
        print(f"skipped: {reason}")
        status = SKIPPED
    except BaseException:  # pylint: disable=broad-except
        traceback.print_exc(file=sys.stdout)
    signal.alarm(GRACE)
    try:
        scenario.finish(status == PASSED)
    except BaseException as error:  # pylint: disable=broad-except
        if isinstance(error, Failure):
            print(f"at the end: {error}")
        else:
            traceback.print_exc(file=sys.stdout)
        status = FAILED
    signal.alarm(0)
    kill_descendants(os.getpid())
    if status == FAILED:
        explain(folder)
    return status


# --- in the runner ---


class Job:
    def __init__(self, case, options, shared):
        self.case = case
        self.folder = tempfile.mkdtemp(prefix="tr.", dir="/tmp")
        self.output = os.path.join(shared, f"{os.path.basename(self.folder)}.out")
        self.began = time.monotonic()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            status = FAILED
            try:
                os.setsid()
                null = os.open(os.devnull, os.O_RDONLY)
                out = os.open(self.output, os.O_WRONLY | os.O_CREAT, 0o600)
                os.dup2(null, 0)
                os.dup2(out, 1)
                os.dup2(out, 2)
                status = run_case(case, options, self.folder, shared)
                sys.stdout.flush()
            finally:
                os._exit(status)

    def ended(self):
        """The status, or None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            return code if code in (PASSED, SKIPPED) else FAILED
        if time.monotonic() - self.began > self.case.deadline + 2 * GRACE:
            self.kill()
            return FAILED
        return None

    def kill(self):
        below = descendants(self.pid)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        for pid in below:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def report(self, status, options):
        word = {PASSED: "PASS", FAILED: "FAIL", SKIPPED: "SKIP"}[status]
        text = f"{word} {self.case.name:<44} {time.monotonic() - self.began:6.1f} s"
        if status != PASSED:
            with open(self.output, encoding="utf-8", errors="replace") as file:
                said = file.read()
            text += "\n" + "".join(f"    {line}\n" for line in said.splitlines())
            text = text.rstrip("\n")
        if status == FAILED and options.keep:
            text += f"\n    kept: {self.folder}"
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
        print(text, flush=True)


def run_all(cases, options, shared):
    counts = [0, 0, 0]
    todo = [case for case in cases for _ in range(options.repeat)]
    # The longest first, so that the last one does not run alone for long.
    todo.sort(key=lambda case: -case.deadline)
    jobs = []
    try:
        while todo or jobs:
            while todo and len(jobs) < options.jobs:
                jobs.append(Job(todo.pop(0), options, shared))
            for job in list(jobs):
                status = job.ended()
                if status is not None:
                    jobs.remove(job)
                    job.report(status, options)
                    counts[status] += 1
            time.sleep(0.02)
    finally:
        for job in jobs:
            job.kill()
            shutil.rmtree(job.folder, ignore_errors=True)
        kill_descendants(os.getpid())
    return counts


def prepare(options):
    """None, or why nothing can be run."""
    for program in ("torpord", "torpor-mover"):
        if not os.access(os.path.join(options.programs, program), os.X_OK):
            return f"{options.programs}/{program} is not there: run make"
    for command in (["scripts/fetch-qemu"], ["tests/guest/build-guest"]):
        if not os.path.exists(qemu_program(options.qemu)) or "guest" in command[0]:
            done = subprocess.run([os.path.join(TOP, *command)], stdout=subprocess.DEVNULL,
                                  check=False)
            if done.returncode:
                return f"{command[0]} failed"
    return None


def _ended(*_):
    raise KeyboardInterrupt


def main(argv):
    options = parse(argv)
    sys.path.insert(0, REAL)
    cases = discover(options)
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    why = prepare(options)
    if why or not cases:
        print(f"tests/real/run: {why or 'no scenario matches'}", file=sys.stderr)
        return 2
    become_subreaper()
    signal.signal(signal.SIGTERM, _ended)
    signal.signal(signal.SIGHUP, _ended)
    shared = tempfile.mkdtemp(prefix="tr.", dir="/tmp")
    try:
        counts = run_all(cases, options, shared)
    except KeyboardInterrupt:
        print("tests/real/run: interrupted", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(shared, ignore_errors=True)
    print(f"{counts[PASSED]} passed, {counts[FAILED]} failed, {counts[SKIPPED]} skipped")
    return 1 if counts[FAILED] else 0
