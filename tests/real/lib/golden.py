# SPDX-License-Identifier: LGPL-2.1-or-later
"""Golden guests: Linux is booted once for each kind of VM of a run, and copied from then on.

A boot under TCG is most of what a scenario costs. So the first that boots a kind boots it aside,
under a torpord of its own, and migrates the ready guest to a file; what the boot left in free memory
is wiped first, since each save of each copy would carry it. A copy is a VM whose launch.wrapper
adds -incoming to its first start: torpord's vm-start takes all its steps, and its `cont` lets a guest
go on that ticks already. Its next starts are boots. Only Vm.boot() of an unchanged VM copies; what is
about a boot itself uses vm.define(), vm.start() and vm.ready().

The copy gets a nonce of its own, as a boot would have made one, so that two guests, or a guest and its
successor, are never taken for each other.
"""

import fcntl
import json
import os
import re
import secrets
import shutil
import socket

from .base import TOP, poll

WRAPPER = os.path.join(TOP, "tests", "real", "lib", "run-copy")
KERNEL_MIB = 128        # what a booted guest needs for itself, generously
MEMORY, DISK, CONSOLE = "memory", "disk.qcow2", "console"


class Monitor:
    """A second monitor of QEMU: torpord's own is for torpord."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(60)
        self.sock.connect(path)
        self.file = self.sock.makefile("rwb")
        self.file.readline()
        self.cmd("qmp_capabilities")

    def cmd(self, name, **arguments):
        self.file.write(json.dumps({"execute": name, "arguments": arguments}).encode() + b"\n")
        self.file.flush()
        while True:
            reply = json.loads(self.file.readline())
            if "return" in reply or "error" in reply:
                return reply["return"]

    def close(self):
        self.file.close()
        self.sock.close()


def _save(monitor, path):
    """The memory and devices of a running guest, in a file. It runs until the end: only what ran
    when it was saved obeys a `cont` that comes while it is loaded."""
    monitor.cmd("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
    monitor.cmd("migrate", uri=f"exec:cat >'{path}'")
    poll(lambda: monitor.cmd("query-migrate")["status"] == "completed", 60, "a golden guest's save")
    monitor.close()


def _wipe(vm):
    """Fills most of the free memory with zeros."""
    free = int(re.match(r"\d+", vm.kind["memory"]).group()) - KERNEL_MIB
    if free > 0:
        vm.ask(f"fill {free} zero", 200)
        vm.ask("fill 0 zero")


def _make(s, vm, folder):
    """Boots a VM like `vm` under a torpord of its own and leaves what a copy needs in the folder."""
    maker = type(s)(s.options, f"{folder}.made", s.shared)
    try:
        golden = maker.vm(vm.name, **vm.kind)
        monitor = maker.path("monitor")
        golden.spec["launch"]["args"] += ["-qmp", f"unix:{monitor},server=on,wait=off"]
        golden.define()
        golden.start()
        golden.ready()
        golden.tick()
        _wipe(golden)
        if golden.disk:
            golden.ask("sync")
        _save(Monitor(monitor), os.path.join(folder, MEMORY))
        golden.quit()
        if golden.disk:
            os.rename(golden.disk, os.path.join(folder, DISK))
        os.rename(golden.log_path, os.path.join(folder, CONSOLE))
        maker.verify_nothing_left()
    finally:
        maker.daemon.stop()
        shutil.rmtree(maker.dir, ignore_errors=True)


def _golden(s, vm):
    """The folder of the golden guest of this kind; made by the first that asks."""
    name = "-".join(["golden", vm.version] + [str(value) for value in vm.kind.values()])
    folder = os.path.join(s.shared, name)
    with open(f"{folder}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(os.path.join(folder, "complete")):
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
            os.makedirs(f"{folder}.made", exist_ok=True)
            _make(s, vm, folder)
            with open(os.path.join(folder, "complete"), "wb"):
                pass
    return folder


def arrange(s, vm):
    """Makes the first start of a VM that is not defined yet the start of a copy."""
    folder = _golden(s, vm)
    memory = s.path(f"{vm.name}.golden")
    os.symlink(os.path.join(folder, MEMORY), memory)
    if vm.disk:
        shutil.copyfile(os.path.join(folder, DISK), vm.disk)
    shutil.copyfile(os.path.join(folder, CONSOLE), vm.log_path)
    vm.spec["launch"]["wrapper"] = [WRAPPER, memory]


def christen(vm):
    """Gives the copy a nonce of its own; returns it once the guest ticks with it."""
    mark = vm.mark()
    nonce = vm.ask(f"nonce {secrets.token_hex(8)}")
    vm.line(rf"TICK n=\d+ nonce={nonce} ", mark=mark)
    return nonce
