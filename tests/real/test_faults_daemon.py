# SPDX-License-Identifier: LGPL-2.1-or-later
"""torpord dies in each step of each plan, before it, in it, after it; then it starts again.

Before the commit point the VM is what it was; after it, what it was to become (docs/internals.md).
"""

import time

from lib import check, deadline, equal, poll, slow, tag, version
from lib.faults import (DEATHS, HIBERNATE, POWERDOWN, RESTORE, Rows, START, armed, boot_again,
                        killed, mover_pids, no_image, no_leftovers, one_image, qemu_pids, revive,
                        runs_on, send_and_die, settled, sleeps, wakes)

FAST_HIBERNATE = ("create-image:die-after-effect", "save-state:die-after-effect",
                  "commit:die-after-effect", "release-stream:die-before",
                  "end-qemu:die-after-effect")
FAST_RESTORE = ("launch:die-after-effect", "load:die-after-effect", "consume:die-after-effect",
                "ran:die-after-effect", "run:die-after-enter", "delete-image:die-after-effect")
FAST_START = ("launch:die-after-enter", "launch:die-after-effect", "record:die-after-effect",
              "run:die-after-effect")


def all_rows(steps):
    return [f"{step}:{death}" for step in steps for death in DEATHS]


def before_commit(steps, commit, fault):
    """The commit record is written after the effect of its step."""
    return steps.index(fault.split(":")[0]) <= steps.index(commit)


def hibernate_row(s, vm, fault):
    before = vm.tick()
    armed(s, f"hibernate/{fault}")
    vm.wait_state("running/ok")
    send_and_die(s, "vm-hibernate", name="vm")
    revive(s)
    settled(s)
    if before_commit(HIBERNATE, "commit", fault):
        runs_on(s, vm, before)
        return "running"
    sleeps(s, vm)
    wakes(s, vm, before)
    return "hibernated, restored"


def restore_row(s, vm, fault):
    before = vm.tick()
    armed(s, f"restore/{fault}")
    vm.wait_state("running/ok")
    vm.hibernate()
    send_and_die(s, "vm-restore", name="vm")
    revive(s)
    settled(s)
    if before_commit(RESTORE, "ran", fault):
        sleeps(s, vm)
        wakes(s, vm, before)
        return "hibernated, restored"
    runs_on(s, vm, before)
    return "running"


def start_row(s, vm, fault):
    armed(s, f"start/{fault}")
    send_and_die(s, "vm-start", name="vm")
    revive(s)
    info = settled(s)
    equal(f"{info['state']}/{info['reason']}", "shutoff/start-failed", "state")
    no_image(s, vm)
    s.qemu_io(vm, "read 0 512")
    no_leftovers(s, 0)
    return "shutoff"


def powerdown_row(s, vm, fault):
    before = vm.tick()
    armed(s, f"powerdown/{fault}")
    vm.wait_state("running/ok")
    send_and_die(s, "vm-powerdown", name="vm")
    if fault == "power-down:die-after-effect":
        poll(lambda: not qemu_pids(), 20, "the end of QEMU")
    revive(s)
    info = settled(s)
    if fault != "power-down:die-after-effect":
        runs_on(s, vm, before)
        return "running"
    # QEMU ended while nobody listened: why, only the dead daemon knew.
    check(info["state"] in ("shutoff", "crashed"), f"state {info['state']}/{info['reason']}")
    no_leftovers(s, 0)
    boot_again(s, vm)
    return info["state"]


def walk(s, row, faults):
    vm = s.boot()
    vm.fill(8)
    armed(s, None)
    vm.wait_state("running/ok")
    runs_on(s, vm, vm.tick())
    rows = Rows(s)
    for fault in faults:
        if not rows.row(fault, row, s, vm, fault):
            armed(s, None) if s.daemon.running() else revive(s)
            bring_back(s, vm)
    rows.done()
    if row is not powerdown_row:
        vm.verify()


def bring_back(s, vm):
    """After a failed row: the VM runs, whatever it takes."""
    state = settled(s)["state"]
    if state == "running":
        return
    s.client.cmd("vm-quit", name="vm")
    s.client.cmd("vm-start", name="vm", mode="boot", discard_image=True, wait=True, seconds=90)
    vm.ready(vm.mark() - 200 if vm.mark() > 200 else 0)
    vm.fill(8)


@tag("faults")
@version
@deadline(180)
def test_dies_while_hibernating(s):
    walk(s, hibernate_row, FAST_HIBERNATE)


@tag("faults")
@slow
@deadline(600)
def test_dies_while_hibernating_all(s):
    walk(s, hibernate_row, [row for row in all_rows(HIBERNATE) if row not in FAST_HIBERNATE])


@tag("faults")
@version
@deadline(180)
def test_dies_while_restoring(s):
    walk(s, restore_row, FAST_RESTORE)


@tag("faults")
@slow
@deadline(900)
def test_dies_while_restoring_all(s):
    walk(s, restore_row, [row for row in all_rows(RESTORE) if row not in FAST_RESTORE])


def start_walk(s, faults):
    vm = s.vm()
    vm.define()
    rows = Rows(s)
    for fault in faults:
        rows.row(fault, start_row, s, vm, fault)
    rows.done()
    vm.start()
    vm.ready()


@tag("faults")
def test_dies_while_starting(s):
    start_walk(s, FAST_START)


@tag("faults")
@slow
@deadline(300)
def test_dies_while_starting_all(s):
    start_walk(s, [row for row in all_rows(START) if row not in FAST_START])


@tag("faults")
@slow
@deadline(240)
def test_dies_while_powering_down(s):
    walk(s, powerdown_row, all_rows(POWERDOWN))


# --- what happens to the others while the daemon is dead ---


def die_sealed(s, vm, fault):
    armed(s, f"hibernate/{fault}")
    vm.wait_state("running/ok")
    send_and_die(s, "vm-hibernate", name="vm")
    vm.silent()


def sealed_row(s, vm):
    """The image is sealed, the commit is not: the mover holds the stream until recovery ends it."""
    before = vm.tick()
    die_sealed(s, vm, "commit:die-before")
    movers = mover_pids()
    equal(len(movers), 1, "movers that hold a sealed image")
    equal(len(qemu_pids()), 1, "QEMUs")
    revive(s)
    settled(s)
    runs_on(s, vm, before)


def unsealed_row(s, vm):
    """A mover whose image is not sealed ends with the daemon; the guest stays stopped until then."""
    before = vm.tick()
    die_sealed(s, vm, "save-state:die-after-enter")
    poll(lambda: not mover_pids(), 5, "end of the mover")
    revive(s)
    settled(s)
    runs_on(s, vm, before)


def sealed_mover_killed_row(s, vm):
    before = vm.tick()
    die_sealed(s, vm, "commit:die-before")
    killed(s, mover_pids()[0])
    revive(s)
    settled(s)
    runs_on(s, vm, before)


def committed_mover_killed_row(s, vm):
    """The stream closes under a committed image: QEMU is never continued, the image is what is left."""
    before = vm.tick()
    die_sealed(s, vm, "release-stream:die-before")
    killed(s, mover_pids()[0])
    revive(s)
    settled(s)
    sleeps(s, vm)
    wakes(s, vm, before)


def committed_all_killed_row(s, vm):
    before = vm.tick()
    die_sealed(s, vm, "release-stream:die-before")
    killed(s, qemu_pids()[0])
    poll(lambda: not mover_pids(), 5, "end of the mover after QEMU's")
    revive(s)
    settled(s)
    sleeps(s, vm)
    wakes(s, vm, before)


def restored_qemu_killed_row(s, vm):
    """consume is written, ran is not, QEMU is gone: the image is offered again."""
    before = vm.tick()
    armed(s, "restore/consume:die-after-effect")
    vm.wait_state("running/ok")
    vm.hibernate()
    send_and_die(s, "vm-restore", name="vm")
    for pid in qemu_pids():
        killed(s, pid)
    revive(s)
    settled(s)
    sleeps(s, vm)
    wakes(s, vm, before)


def uncommitted_qemu_killed_row(s, vm):
    """A guest that ran and is gone before the commit: crashed, whatever was written."""
    die_sealed(s, vm, "commit:die-before")
    killed(s, qemu_pids()[0])
    revive(s)
    equal(settled(s)["state"], "crashed", "state")
    s.qemu_io(vm, "read 0 512")
    no_image(s, vm)
    no_leftovers(s, 0)


def ran_qemu_killed_row(s, vm):
    """ran is written: the image is never offered again, though nobody knows whether cont was sent."""
    armed(s, "restore/run:die-before")
    vm.wait_state("running/ok")
    vm.hibernate()
    send_and_die(s, "vm-restore", name="vm")
    for pid in qemu_pids():
        killed(s, pid)
    revive(s)
    equal(settled(s)["state"], "crashed", "state")
    check(not [image for image in vm.images() if image["state"] == "complete"],
          f"an image is offered: {vm.images()}")
    s.client.err("vm-restore", "InvalidState", name="vm", wait=True)
    s.qemu_io(vm, "read 0 512")
    no_leftovers(s, 0)


@tag("faults")
@version
@deadline(180)
def test_others_while_it_is_dead(s):
    vm = s.boot()
    rows = Rows(s)
    for row in s.rows((sealed_row, committed_mover_killed_row, committed_all_killed_row,
                       restored_qemu_killed_row), (unsealed_row, sealed_mover_killed_row)):
        if not rows.row(row.__name__, row, s, vm):
            armed(s, None) if s.daemon.running() else revive(s)
            bring_back(s, vm)
    if rows.row("uncommitted_qemu_killed_row", uncommitted_qemu_killed_row, s, vm):
        boot_again(s, vm)
        rows.row("ran_qemu_killed_row", ran_qemu_killed_row, s, vm)
    rows.done()


@tag("faults")
def test_dies_again_in_its_recovery(s):
    """kill -9 at random moments of the recovery itself, again and again; then it is let be."""
    vm = s.boot()
    for fault, committed in (("save-state:die-after-effect", False), ("commit:die-before", False),
                             ("release-stream:die-before", True)):
        before = vm.tick()
        armed(s, f"hibernate/{fault}")
        vm.wait_state("running/ok")
        send_and_die(s, "vm-hibernate", name="vm")
        for _ in range(4):
            revive(s)
            s.daemon.kill()
        revive(s)
        settled(s)
        if committed:
            sleeps(s, vm)
            wakes(s, vm, before)
        else:
            runs_on(s, vm, before)


def test_orderly_end_while_hibernating(s):
    """SIGTERM before the commit rolls back, after it leaves the rest to the next start."""
    vm = s.boot()
    before = vm.tick()
    for wait in s.rows((0, 0.1, 0.4), (0.05, 0.2, 0.8)):
        s.client.cmd("vm-hibernate", name="vm")
        end = time.monotonic() + wait
        poll(lambda: time.monotonic() >= end, 5)
        s.daemon.restart()
        state = settled(s)["state"]
        check(state in ("running", "hibernated"), f"state {state}")
        if state == "hibernated":
            one_image(s, vm)
            vm.restore()
        before = vm.went_on(before)
        no_image(s, vm)
