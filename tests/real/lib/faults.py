# SPDX-License-Identifier: LGPL-2.1-or-later
"""For the scenarios in which something dies: rows, waiting for the end of an operation, what is left."""

import os
import re
import signal
import subprocess
import sys
import time
import traceback

from .base import Failure, check, equal, poll
from .client import Client
from .proc import alive, descendants, reap

MOVER = "torpor-mover"
HIBERNATE = ("preflight", "create-image", "pause-guest", "set-capabilities", "save-state",
             "fingerprint", "write-manifest", "commit", "release-stream", "end-qemu", "reap-mover",
             "verify-disks")
RESTORE = ("verify", "hook-prepare", "launch", "connect", "check-cpu", "load-prepare", "load",
           "compare", "consume", "release-held", "identify", "activate", "refingerprint",
           "hook-before-run", "ran", "run", "announce", "clock", "delete-image")
START = ("check", "hook-prepare", "launch", "connect", "identify", "hook-before-run", "record",
         "run")
POWERDOWN = ("check", "power-down")
DEATHS = ("die-before", "die-after-enter", "die-after-effect")
EXIT_INJECTED = 42
MOVING = ("starting", "hibernating", "restoring")


class Rows:
    """Runs the rows of a table one after the other; a failed one does not keep the next from running."""

    def __init__(self, s, most_failures=4):
        self.s = s
        self.failed = []
        self.most = most_failures

    def row(self, name, function, *args):
        """The row's result; `function` may return a text that is printed beside its name."""
        began = time.monotonic()
        try:
            said = function(*args)
            print(f"row {name}: {said or 'ok'} ({time.monotonic() - began:.1f} s)", flush=True)
            return True
        except Failure as failure:
            # The scenario's own deadline is a Failure as well, and no row's fault.
            if type(failure).__name__ == "Late":
                raise
            self._bad(name, failure)
        except Exception as error:  # pylint: disable=broad-except
            self._bad(name, error)
            traceback.print_exc(file=sys.stdout)
        if len(self.failed) > self.most:
            self.done()
        return False

    def _bad(self, name, error):
        print(f"row {name}: FAILED: {error}", flush=True)
        self.failed.append(f"{name}: {error}")

    def done(self):
        check(not self.failed, f"{len(self.failed)} rows failed:\n" + "\n".join(self.failed))


# --- processes ---


def _is(pid, name):
    """By its link: the mover is run from a descriptor, so its name may be a number."""
    try:
        return name in os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return False


def mover_pids():
    return [pid for pid in descendants(os.getpid()) if _is(pid, MOVER)]


def qemu_pids():
    return [pid for pid in descendants(os.getpid()) if _is(pid, "qemu-system")]


def _reap(s):
    reap(tuple(d.process.pid for d in s.daemons if d.process))


def killed(s, pid):
    """kill -9, and gone."""
    os.kill(pid, signal.SIGKILL)

    def gone():
        _reap(s)
        return not alive(pid)

    poll(gone, 10, f"end of process {pid}")


# --- daemon ---


def armed(s, fault):
    """The daemon anew (VMs stay), with a fault point of the runner: "[KIND/]STEP:FAULT" or None."""
    if s.daemon.running():
        s.daemon.stop()
    s.daemon.expected_death = False
    s.daemon.start({"TORPOR_FAULT": fault} if fault else None)


def send_and_die(s, command, seconds=60, **arguments):
    """Sends a command to a daemon that dies of it; checks that it died of the fault point."""
    client = Client(s.daemon.socket)
    client.send(command, **arguments)
    try:
        status = s.daemon.process.wait(seconds)
    except subprocess.TimeoutExpired:
        replies = client.drain() or client.replies
        raise Failure(f"{command}: torpord did not die: {replies} {client.events[-2:]}") from None
    finally:
        client.close()
    s.daemon.expected_death = True
    equal(status, EXIT_INJECTED, "torpord's status")


def revive(s):
    """Starts the daemon after its death, without a fault."""
    _reap(s)
    s.daemon.expected_death = False
    s.daemon.start()


def settled(s, name="vm", seconds=30):
    """query-vm once no operation holds the VM and its state is one that lasts."""
    last = [None]

    def quiet():
        _reap(s)
        info = last[0] = s.client.cmd("query-vm", name=name)
        return info["operation"] is None and info["state"] not in MOVING + ("lost",)

    try:
        poll(quiet, seconds)
    except Failure:
        info = last[0]
        raise Failure(f"VM {name} did not settle in {seconds} s: {info['state']}/{info['reason']} "
                      f"{info['operation']}") from None
    return last[0]


def wait_phase(s, operation, phase, seconds=30):
    """Waits until a running operation is in that phase; its record."""
    record = [None]

    def there():
        record[0] = s.client.cmd("query-operation", id=operation)
        if record[0]["status"] not in ("running", "stuck") and record[0]["phase"] != phase:
            raise Failure(f"operation ended in {record[0]['phase']}: {record[0].get('error')}")
        return record[0]["phase"] == phase

    try:
        poll(there, seconds)
    except Failure as failure:
        raise Failure(f"phase {phase} of {operation}: {failure}; now {record[0]}") from None
    return record[0]


def wait_step(s, operation, fault, seconds=30):
    """Waits until an operation is inside the step of "[KIND/]STEP:FAULT"; only the log tells steps."""
    step = fault.split("/")[-1].split(":")[0]
    text = f"op={operation} step={step} enter"
    poll(lambda: text in s.daemon.log(), seconds, f"step {step} of {operation}")


def ended(s, operation, seconds=60):
    """The record of an operation that has ended."""
    s.client.cmd("operation-wait", seconds=seconds + 10, id=operation, timeout=seconds)
    record = s.client.cmd("query-operation", id=operation)
    check(record["status"] in ("succeeded", "failed", "cancelled"),
          f"operation has not ended: {record}")
    return record


def failed(s, operation, cls=None, pattern=None, seconds=60):
    """The error of an operation that failed or was cancelled."""
    record = ended(s, operation, seconds)
    check(record["status"] in ("failed", "cancelled"), f"operation did not fail: {record}")
    error = record["error"]
    wanted = (cls,) if isinstance(cls, str) else cls
    check(not wanted or error["class"] in wanted, f"error is {error}, not {cls}")
    check(not pattern or re.search(pattern, error["desc"]), f"error {error} does not say {pattern}")
    check(record["rollback"] in ("done", "none"), f"rollback is {record['rollback']}")
    return error


# --- what is left ---


def pool_files(s, pool="default"):
    """What the pool's folder holds but its own mark, relative; empty folders of VMs do not count."""
    top = s.daemon.pools[pool]
    found = []
    for folder, folders, names in os.walk(top):
        found += [os.path.relpath(os.path.join(folder, name), top) for name in names
                  if name != ".torpor-pool"]
        if folder != top and os.path.dirname(folder) != top and not names and not folders:
            found.append(os.path.relpath(folder, top))
    return sorted(found)


def no_image(s, vm):
    """No image, complete or partial, by the API or on disk."""
    equal(vm.images(), [], "query-images")
    equal(pool_files(s), [], "files in the pool")


def one_image(s, vm):
    """One complete image and nothing else."""
    equal([image["state"] for image in vm.images()], ["complete"], "images")
    names = sorted(os.path.basename(path) for path in pool_files(s) if "/.spare-" not in path)
    equal(names, ["manifest.json", "memory.zst"], "files in the pool")


def no_leftovers(s, qemus):
    """No mover, `qemus` QEMUs, empty journals, no more descriptors than the last time."""
    def quiet():
        _reap(s)
        return not mover_pids() and len(qemu_pids()) == qemus

    try:
        poll(quiet, 5)
    except Failure:
        raise Failure(f"processes are left: {descendants(os.getpid())}, {qemus} QEMUs wanted") \
            from None
    folder = os.path.join(s.daemon.state, "vms")
    for name in os.listdir(folder):
        log = os.path.join(folder, name, "op.log")
        check(not os.path.exists(log) or os.path.getsize(log) == 0, f"{log} is not empty")
        bad = [entry for entry in os.listdir(os.path.join(folder, name)) if ".bad-" in entry]
        check(not bad, f"set aside: {bad}")
    _descriptors(s, qemus)


def _descriptors(s, qemus):
    counts = getattr(s, "descriptor_counts", None)
    if counts is None:
        counts = s.descriptor_counts = {}
    if qemus not in counts:
        # The scenario's own connection comes and goes; the rest is to be the same each time.
        counts[qemus] = s.daemon.descriptors()
        return

    def same():
        # The connection to an agent is made at its first use and kept.
        return len(s.daemon.descriptors()) <= len(counts[qemus]) + qemus

    try:
        poll(same, 3)
    except Failure:
        more = s.daemon.descriptors()
        for entry in counts[qemus]:
            if entry in more:
                more.remove(entry)
        raise Failure(f"torpord has more descriptors open than before: {more}") from None


def runs_on(s, vm, before):
    """The guest of before runs, nothing holds it, no image, nothing left."""
    vm.expect("running/ok")
    vm.went_on(before)
    no_image(s, vm)
    no_leftovers(s, 1)


def sleeps(s, vm):
    """Hibernated, with one complete image, no process left."""
    vm.expect("hibernated/save")
    one_image(s, vm)
    no_leftovers(s, 0)


def wakes(s, vm, before):
    """A restore gives the same guest back."""
    vm.restore()
    runs_on(s, vm, before)


def crashed(s, vm):
    """Crashed with its disk unlocked, no image, nothing left."""
    vm.expect("crashed")
    s.qemu_io(vm, "read 0 512")
    no_image(s, vm)
    no_leftovers(s, 0)


def boot_again(s, vm):
    """Boots a VM that is off; the guest is ready."""
    mark = vm.mark()
    vm.start(mode="boot")
    vm.ready(mark)
    return vm.tick()


def mover_fault(s, vm, fault):
    """The fault that the next save movers of this VM will have; None: none."""
    s.client.cmd("vm-set", name=vm.name, merge={"labels": {"x-mover-fault": fault}})
