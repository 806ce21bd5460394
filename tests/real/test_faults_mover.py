# SPDX-License-Identifier: LGPL-2.1-or-later
"""The mover dies, stalls or cannot write at every stage of a save; it is killed in a load.

The guest goes on, nothing is left of the image, the error names the cause.
"""

from lib import check, deadline, poll, tag, version
from lib.faults import (Rows, armed, ended, failed, killed, mover_fault, mover_pids, no_leftovers,
                        runs_on, settled, sleeps, wait_phase, wait_step, wakes)

MIB = 1 << 20

FAULTS = (
    ("die-after-hello", r"mover|signal 9|killed"),
    (f"die-at-bytes:{20 * MIB}", r"mover|signal 9|killed"),
    (f"io-error-at-bytes:{3 * MIB}", r"memory\.zst|image|write"),
)
MORE_FAULTS = (
    ("die-at-bytes:1", r"mover|signal 9|killed"),
    (f"io-error-at-bytes:{4096}", r"memory\.zst|image|write"),
)


def save_row(s, vm, fault, pattern):
    mover_fault(s, vm, fault)
    before = vm.tick()
    operation = s.client.cmd("vm-hibernate", name="vm")["operation"]
    error = failed(s, operation, pattern=pattern)
    settled(s)
    runs_on(s, vm, before)
    return f"{error['class']}: {error['desc']}"


def sealed_row(s, vm):
    """It says `sealed` and dies: seen before the commit or after it, never in between."""
    mover_fault(s, vm, "die-after-sealed")
    before = vm.tick()
    operation = s.client.cmd("vm-hibernate", name="vm")["operation"]
    record = ended(s, operation)
    settled(s)
    if record["status"] == "succeeded":
        sleeps(s, vm)
        wakes(s, vm, before)
        return "hibernated, restored"
    failed(s, operation, pattern="mover")
    runs_on(s, vm, before)
    return record["error"]["desc"]


def killed_row(s, vm):
    """kill -9 from outside, in the middle."""
    mover_fault(s, vm, f"stall-at-bytes:{8 * MIB}")
    before = vm.tick()
    operation = s.client.cmd("vm-hibernate", name="vm")["operation"]
    wait_phase(s, operation, "Saving")
    poll(mover_pids, 10, "a mover")
    vm.silent()
    killed(s, mover_pids()[0])
    error = failed(s, operation, pattern=r"mover")
    settled(s)
    runs_on(s, vm, before)
    return f"{error['class']}: {error['desc']}"


def late_row(s, vm):
    """A mover that stands still costs the operation its time, not the guest its life."""
    mover_fault(s, vm, f"stall-at-bytes:{8 * MIB}")
    before = vm.tick()
    operation = s.client.cmd("vm-hibernate", name="vm", timeout=4)["operation"]
    error = failed(s, operation, "Timeout", seconds=15)
    settled(s)
    runs_on(s, vm, before)
    return error["desc"]


def again_row(s, vm):
    """After all of it a save and a restore are as if nothing had been."""
    mover_fault(s, vm, None)
    before = vm.tick()
    vm.hibernate()
    sleeps(s, vm)
    wakes(s, vm, before)


@tag("faults")
@version
@deadline(150)
def test_save_mover(s):
    vm = s.boot()
    vm.fill(32)
    rows = Rows(s)
    for fault, pattern in s.rows(FAULTS, MORE_FAULTS):
        rows.row(fault, save_row, s, vm, fault, pattern)
    for _ in s.rows(range(1), range(4)):
        rows.row("die-after-sealed", sealed_row, s, vm)
    rows.row("killed", killed_row, s, vm)
    rows.row("late", late_row, s, vm)
    rows.row("again", again_row, s, vm)
    vm.verify()
    rows.done()


@tag("faults")
@version
def test_sealed_mover(s):
    """kill -9 of the mover that holds the sealed stream, before the commit."""
    vm = s.boot()
    before = vm.tick()
    armed(s, "hibernate/fingerprint:silent")
    vm.wait_state("running/ok")
    runs_on(s, vm, before)
    operation = s.client.cmd("vm-hibernate", name="vm")["operation"]
    wait_step(s, operation, "fingerprint")
    killed(s, mover_pids()[0])
    failed(s, operation, pattern="mover")
    settled(s)
    runs_on(s, vm, before)
    again_row(s, vm)


def load_row(s, vm):
    """The load's mover is killed as soon as it is there."""
    before = vm.tick()
    vm.hibernate()
    watch = s.connect()
    operation = watch.cmd("vm-restore", name="vm")["operation"]
    wait_step(s, operation, "load")
    poll(mover_pids, 10, "a mover")
    killed(s, mover_pids()[0])
    error = failed(s, operation)
    check("mover" in error["desc"] or "load" in error["desc"], f"the cause is not named: {error}")
    settled(s)
    sleeps(s, vm)
    wakes(s, vm, before)
    return error["desc"]


@tag("faults")
@version
def test_load_mover(s):
    vm = s.boot()
    vm.fill(64)
    armed(s, "restore/load:silent")
    vm.wait_state("running/ok")
    load_row(s, vm)
    vm.verify()
    no_leftovers(s, 1)
