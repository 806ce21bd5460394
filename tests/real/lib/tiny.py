# SPDX-License-Identifier: LGPL-2.1-or-later
"""A VM without a guest: its firmware finds nothing to boot. Hibernates and restores in 0.2 s."""

import os

from .base import check, equal, poll, qemu_program


class TinyVm:
    """For scenarios in which the files matter, not the guest. `disk`: a raw file of 1 MiB."""

    def __init__(self, s, name="vm", disk=True, pool=None):
        self.s = s
        self.name = name
        self.disk = s.path(f"{name}.raw") if disk else None
        launch = {"binary": qemu_program(s.qemu), "args": [
            "-nodefaults", "-no-user-config", "-display", "none", "-machine", "pc", "-accel", "tcg",
            "-m", "8M"]}
        if disk:
            with open(self.disk, "wb") as file:
                file.truncate(1 << 20)
            launch["args"] += ["-device", "virtio-blk-pci,drive=disk0"]
            launch["disks"] = {"disk0": {"file": self.disk, "format": "raw"}}
        self.spec = {"launch": launch}
        if pool:
            self.spec["hibernate"] = {"pool": pool}

    def cmd(self, verb, **arguments):
        return self.s.client.cmd(verb, name=self.name, **arguments)

    def define(self):
        return self.cmd("vm-define", spec=self.spec)

    def start(self):
        self.define()
        self.cmd("vm-start", wait=True, seconds=60)
        return self

    def hibernate(self, **arguments):
        return self.cmd("vm-hibernate", wait=True, seconds=60, **arguments)

    def restore(self, **arguments):
        return self.cmd("vm-restore", wait=True, seconds=60, **arguments)

    def state(self):
        info = self.cmd("query-vm")
        return f"{info['state']}/{info['reason']}"

    def expect(self, state):
        equal(self.state(), state, f"state of {self.name}")

    def wait_state(self, state, seconds=20):
        poll(lambda: self.state() == state, seconds, f"{self.name} {state}")

    def images(self):
        return self.s.client.cmd("query-images", vm=self.name)

    def runs(self):
        """Its QEMU says so."""
        said = self.cmd("vm-monitor", execute="query-status")
        check(said["running"], f"{self.name}: QEMU says {said}")
