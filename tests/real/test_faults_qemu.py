# SPDX-License-Identifier: LGPL-2.1-or-later
"""QEMU is killed, or stands still, in each state.

Killed before the commit of a save, or after the guest ran: `crashed`, disks unlocked, no image.
Killed after the commit, or before a restored guest ran: `hibernated`, the image as before.
Stopped: the operation's time holds, and all comes right when QEMU goes on.
"""

import os
import signal
import time

from lib import Failure, check, deadline, equal, poll, slow, tag, version
from lib.faults import (Rows, armed, boot_again, crashed, ended, failed, killed, mover_fault,
                        mover_pids, no_image, no_leftovers, qemu_pids, revive, runs_on,
                        send_and_die, settled, sleeps, wait_phase, wait_step, wakes)

STALL = "stall-at-bytes:8388608"


def held(s, vm, verb, fault, phase, **arguments):
    """Begins an operation that stays in a phase: the id."""
    armed(s, fault)
    vm.wait_state("running/ok")
    if verb == "vm-restore":
        vm.hibernate()
    operation = s.client.cmd(verb, name="vm", **arguments)["operation"]
    if fault:
        wait_step(s, operation, fault)
    return wait_phase(s, operation, phase)["id"]


def kill_save_row(s, vm, fault, phase):
    operation = held(s, vm, "vm-hibernate", fault, phase)
    if not fault:
        poll(mover_pids, 10, "a mover")
    killed(s, qemu_pids()[0])
    error = failed(s, operation, "QemuExited", seconds=20)
    settled(s)
    crashed(s, vm)
    boot_again(s, vm)
    return error["desc"]


@tag("faults")
@version
@deadline(180)
def test_killed_while_saving(s):
    vm = s.boot()
    rows = Rows(s)
    mover_fault(s, vm, STALL)
    rows.row("Saving", kill_save_row, s, vm, None, "Saving")
    mover_fault(s, vm, None)
    for step, phase in s.rows((("fingerprint", "Syncing"),),
                              (("pause-guest", "Pausing"), ("write-manifest", "Syncing"))):
        rows.row(step, kill_save_row, s, vm, f"hibernate/{step}:silent", phase)
    rows.done()


def kill_committed_row(s, vm):
    """At the first sign that it is committed."""
    before = vm.tick()
    watch = s.connect()
    pid = qemu_pids()[0]
    operation = s.client.cmd("vm-hibernate", name="vm")["operation"]
    watch.event("OPERATION", lambda data: data["phase"] == "Terminating")
    try:
        killed(s, pid)
    except ProcessLookupError:
        pass            # it had ended by itself
    watch.close()
    record = ended(s, operation)
    equal(record["status"], "succeeded", f"status of {record}")
    settled(s)
    sleeps(s, vm)
    s.qemu_io(vm, "read 0 512")
    wakes(s, vm, before)


@version
def test_killed_after_the_commit(s):
    vm = s.boot()
    rows = Rows(s)
    for number in s.rows(range(2), range(2, 6)):
        rows.row(f"Terminating {number}", kill_committed_row, s, vm)
    rows.done()


@tag("faults")
@slow
@deadline(120)
def test_killed_after_the_commit_unheard(s):
    """Its end is not heard: the step's limit finds it."""
    vm = s.boot()
    before = vm.tick()
    operation = held(s, vm, "vm-hibernate", "hibernate/release-stream:silent", "Terminating")
    killed(s, qemu_pids()[0])
    equal(ended(s, operation, 100)["status"], "succeeded", "status")
    sleeps(s, vm)
    wakes(s, vm, before)


def kill_load_row(s, vm, fault, phase):
    before = vm.tick()
    operation = held(s, vm, "vm-restore", fault, phase)
    killed(s, poll(qemu_pids, 10, "QEMU")[0])
    error = failed(s, operation, "QemuExited", seconds=20)
    settled(s)
    sleeps(s, vm)
    s.qemu_io(vm, "read 0 512")
    wakes(s, vm, before)
    return error["desc"]


def kill_ran_row(s, vm):
    """`ran` is written: the guest may have run, so its memory is not offered again."""
    held(s, vm, "vm-restore", "restore/announce:silent", "Resuming")
    poll(lambda: s.client.cmd("query-vm", name="vm")["running"], 10, "running")
    killed(s, qemu_pids()[0])
    settled(s)
    vm.expect("crashed")
    check(all(image["state"] != "complete" for image in vm.images()), f"offered: {vm.images()}")
    s.client.err("vm-restore", ("InvalidState", "NotFound"), name="vm", wait=True)
    s.qemu_io(vm, "read 0 512")
    for image in vm.images():
        s.client.cmd("image-delete", image=image["id"])
    boot_again(s, vm)
    no_leftovers(s, 1)


def kill_running_row(s, vm):
    killed(s, qemu_pids()[0])
    settled(s)
    crashed(s, vm)


@tag("faults")
@version
@deadline(150)
def test_killed_while_restoring(s):
    vm = s.boot()
    rows = Rows(s)
    for fault, phase in s.rows((("connect", "Launching"), ("load", "Loading"), ("consume", "Resuming")),
                               (("compare", "Loading"), ("hook-before-run", "Resuming"))):
        rows.row(fault, kill_load_row, s, vm, f"restore/{fault}:silent", phase)
    rows.row("ran", kill_ran_row, s, vm)
    rows.row("running", kill_running_row, s, vm)
    rows.done()


# --- stopped ---


class Stopped:
    """QEMU stands still within a `with`; it goes on at its end, if it is still there."""

    def __init__(self, pid):
        self.pid = pid

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)
        return self

    def __exit__(self, *_):
        try:
            os.kill(self.pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


def turned_back(s, operation, seconds):
    """The record once the operation has ended, is stuck or turned back, at most so late."""
    began = time.monotonic()
    record = [None]

    def over():
        record[0] = s.client.cmd("query-operation", id=operation)
        return record[0]["status"] != "running" or record[0]["phase"] == "RollingBack"

    try:
        poll(over, seconds)
    except Failure:
        raise Failure(f"still {record[0]} after {seconds} s") from None
    return record[0], time.monotonic() - began


def stop_before_row(s, vm):
    """It stood still before the save began: nothing is touched."""
    before = vm.tick()
    with Stopped(qemu_pids()[0]):
        operation = s.client.cmd("vm-hibernate", name="vm", timeout=5)["operation"]
        _, took = turned_back(s, operation, 7)
        failed(s, operation, ("Timeout", "QemuError"), seconds=15)
    error = failed(s, operation)
    settled(s)
    runs_on(s, vm, before)
    return f"{error['desc']} after {took:.1f} s"


def stop_save_row(s, vm, fault, phase):
    """It stands still in the save: turned back in time; that succeeds when QEMU goes on."""
    before = vm.tick()
    operation = held(s, vm, "vm-hibernate", fault, phase, timeout=6)
    if not fault:
        poll(mover_pids, 10, "a mover")
    with Stopped(qemu_pids()[0]):
        record, took = turned_back(s, operation, 8)
        check(record["status"] != "succeeded", f"record {record}")
        s.client.err("vm-pause", ("Busy", "InvalidState"), name="vm")
    settled(s, seconds=60)
    runs_on(s, vm, before)
    record = ended(s, operation)
    equal(record["status"], "failed", f"status of {record}")
    return f"{record['error']['desc']}, {took:.1f} s"


@tag("faults")
@version
@deadline(180)
def test_stopped_while_saving(s):
    vm = s.boot()
    rows = Rows(s)
    rows.row("Preparing", stop_before_row, s, vm)
    mover_fault(s, vm, STALL)
    rows.row("Saving", stop_save_row, s, vm, None, "Saving")
    mover_fault(s, vm, None)
    rows.row("Syncing", stop_save_row, s, vm, "hibernate/fingerprint:silent", "Syncing")
    rows.done()


@tag("faults")
@slow
@deadline(240)
def test_stopped_until_stuck(s):
    """It does not go on: the operation says that it is stuck; later all comes right by itself."""
    vm = s.boot()
    mover_fault(s, vm, STALL)
    before = vm.tick()
    operation = held(s, vm, "vm-hibernate", None, "Saving", timeout=6)
    with Stopped(qemu_pids()[0]):
        poll(lambda: s.client.cmd("query-operation", id=operation)["status"] == "stuck", 120, "stuck")
        check(vm.state().startswith("hibernating"), f"state {vm.state()}")
    settled(s, seconds=90)
    runs_on(s, vm, before)
    equal(ended(s, operation)["status"], "failed", "status")


def stop_committed_row(s, vm):
    """Committed, and QEMU stands still: it is killed, whether its monitor answers or not."""
    before = vm.tick()
    armed(s, "hibernate/release-stream:die-before")
    vm.wait_state("running/ok")
    send_and_die(s, "vm-hibernate", name="vm")
    with Stopped(qemu_pids()[0]):
        revive(s)
        settled(s, seconds=40)
        sleeps(s, vm)
    wakes(s, vm, before)


def stop_end_row(s, vm):
    """After the commit a QEMU that does not end in time is killed."""
    before = vm.tick()
    operation = held(s, vm, "vm-hibernate", "hibernate/release-stream:silent", "Terminating")
    with Stopped(qemu_pids()[0]):
        record = ended(s, operation, 100)
        equal(record["status"], "succeeded", f"status of {record}")
        sleeps(s, vm)
    wakes(s, vm, before)


def stop_load_row(s, vm, fault, phase):
    """A QEMU that stands still in the restore is killed by its roll-back."""
    before = vm.tick()
    operation = held(s, vm, "vm-restore", fault, phase, timeout=6)
    with Stopped(poll(qemu_pids, 10, "QEMU")[0]):
        _, took = turned_back(s, operation, 8)
        error = failed(s, operation, "Timeout", seconds=20)
        settled(s)
        sleeps(s, vm)
    wakes(s, vm, before)
    return f"{error['desc']}, {took:.1f} s"


@tag("faults")
@deadline(150)
def test_stopped_while_restoring(s):
    vm = s.boot()
    rows = Rows(s)
    rows.row("Terminating", stop_committed_row, s, vm)
    for step, phase in s.rows((("load", "Loading"),), (("hook-before-run", "Resuming"),)):
        rows.row(phase, stop_load_row, s, vm, f"restore/{step}:silent", phase)
    rows.done()


@tag("faults")
@slow
@deadline(240)
def test_stopped_after_the_commit(s):
    vm = s.boot()
    stop_end_row(s, vm)


@version
@deadline(150)
def test_stopped_while_running(s):
    """lost/monitor-lost at the latest when a daemon starts beside it; it comes back by itself."""
    vm = s.boot()
    before = vm.tick()
    with Stopped(qemu_pids()[0]):
        s.client.err("vm-pause", ("Timeout", "QemuError"), name="vm", seconds=20)
        s.daemon.restart(kill=True)
        vm.wait_state("lost/monitor-lost", 30)
        s.client.err("vm-hibernate", "InvalidState", name="vm")
    poll(lambda: vm.info()["state"] in ("running", "paused"), 30, "the VM's state")
    # The pause that had no answer lies in QEMU's socket: heard or not, both are right.
    if vm.info()["state"] == "paused":
        s.client.cmd("vm-resume", name="vm")
    vm.wait_state("running", 10)
    before = vm.went_on(before)
    vm.hibernate()
    vm.restore()
    vm.went_on(before)


def quits(s, vm):
    """vm-quit of a VM whose QEMU stands still."""
    with Stopped(qemu_pids()[0]):
        began = time.monotonic()
        s.client.cmd("vm-quit", name="vm", seconds=30)
        took = time.monotonic() - began
        check(took < 15.5, f"vm-quit took {took:.1f} s")
        settled(s)
        vm.expect("shutoff/quit")
        s.qemu_io(vm, "read 0 512")
        no_image(s, vm)
        no_leftovers(s, 0)


def test_quit_of_a_stopped_one(s):
    quits(s, s.boot())


@tag("faults")
def test_quit_of_a_stopped_one_while_saving(s):
    vm = s.boot()
    mover_fault(s, vm, STALL)
    operation = held(s, vm, "vm-hibernate", None, "Saving")
    poll(mover_pids, 10, "a mover")
    quits(s, vm)
    record = ended(s, operation)
    check(record["status"] in ("failed", "cancelled"), f"record {record}")
