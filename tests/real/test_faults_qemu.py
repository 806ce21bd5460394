# SPDX-License-Identifier: LGPL-2.1-or-later
"""QEMU is killed, or stands still, in each state.

Killed before the commit of a save, or after the guest ran: `crashed`, disks unlocked, no image.
Killed after the commit, or before a restored guest ran: `hibernated`, the image as before.
Stopped: the operation's time holds, and all comes right when QEMU goes on.
"""

import os
import signal
import time

from lib import Failure, check, deadline, equal, poll, tag, version
from lib.faults import (Rows, armed, boot_again, crashed, ended, failed, killed, mover_fault,
                        mover_pids, no_image, no_leftovers, qemu_pids, runs_on, settled, sleeps,
                        wait_phase, wakes)

STALL = "stall-at-bytes:8388608"


def held(s, vm, verb, fault, phase, **arguments):
    """Begins an operation that stays in a phase: the id."""
    armed(s, fault)
    vm.wait_state("running/ok")
    if verb == "vm-restore":
        vm.hibernate()
    operation = s.client.cmd(verb, name="vm", **arguments)["operation"]
    wait_phase(s, operation, phase)
    return operation


def kill_save_row(s, vm, fault, phase):
    operation = held(s, vm, "vm-hibernate", fault, phase)
    if not fault:
        poll(mover_pids, 10, "a mover")
    killed(s, qemu_pids()[0])
    error = failed(s, operation, "QemuExited", seconds=20)
    settled(s)
    crashed(s, vm)
    equal(vm.info()["last-exit"]["signal"], 9, "signal of last-exit")
    boot_again(s, vm)
    return error["desc"]


@tag("faults")
@version
@deadline(180)
def test_killed_while_saving(s):
    vm = s.boot()
    rows = Rows(s)
    rows.row("Pausing", kill_save_row, s, vm, "hibernate/pause-guest:silent", "Pausing")
    mover_fault(s, vm, STALL)
    rows.row("Saving", kill_save_row, s, vm, None, "Saving")
    mover_fault(s, vm, None)
    rows.row("Syncing", kill_save_row, s, vm, "hibernate/fingerprint:silent", "Syncing")
    rows.row("manifest", kill_save_row, s, vm, "hibernate/write-manifest:silent", "Syncing")
    rows.done()


def kill_committed_row(s, vm, fault):
    before = vm.tick()
    operation = held(s, vm, "vm-hibernate", fault, "Terminating")
    killed(s, qemu_pids()[0])
    record = ended(s, operation)
    equal(record["status"], "succeeded", f"status of {record}")
    sleeps(s, vm)
    s.qemu_io(vm, "read 0 512")
    wakes(s, vm, before)


@tag("faults")
@version
def test_killed_after_the_commit(s):
    vm = s.boot()
    rows = Rows(s)
    rows.row("release-stream", kill_committed_row, s, vm, "hibernate/release-stream:silent")
    rows.row("end-qemu", kill_committed_row, s, vm, "hibernate/end-qemu:silent")
    rows.done()


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
    for fault, phase in (("launch", "Launching"), ("load", "Loading"), ("compare", "Loading"),
                         ("consume", "Resuming"), ("hook-before-run", "Resuming")):
        rows.row(fault, kill_load_row, s, vm, f"restore/{fault}:silent", phase)
    rows.row("ran", kill_ran_row, s, vm)
    rows.row("running", kill_running_row, s, vm)
    rows.done()


# --- stopped ---


def stopped(pid):
    os.kill(pid, signal.SIGSTOP)


def goes_on(pid):
    os.kill(pid, signal.SIGCONT)


def ended_by(s, operation, seconds):
    """The record once the operation has ended or says that it is stuck, at most so late."""
    began = time.monotonic()
    record = [None]

    def over():
        record[0] = s.client.cmd("query-operation", id=operation)
        return record[0]["status"] != "running"

    try:
        poll(over, seconds)
    except Failure:
        raise Failure(f"still {record[0]} after {seconds} s") from None
    return record[0], time.monotonic() - began


def stop_before_row(s, vm):
    """It stood still before the save began: nothing is touched."""
    before = vm.tick()
    pid = qemu_pids()[0]
    stopped(pid)
    operation = s.client.cmd("vm-hibernate", name="vm", timeout=5)["operation"]
    record, took = ended_by(s, operation, 12)
    goes_on(pid)
    check(record["status"] == "failed" and record["error"]["class"] in ("Timeout", "QemuError"),
          f"record {record}")
    settled(s)
    runs_on(s, vm, before)
    return f"{record['error']['desc']} after {took:.1f} s"


def stop_save_row(s, vm, fault, phase):
    """It stands still in the save: the time holds or the operation says that it is stuck."""
    before = vm.tick()
    operation = held(s, vm, "vm-hibernate", fault, phase, timeout=6)
    if not fault:
        poll(mover_pids, 10, "a mover")
    pid = qemu_pids()[0]
    stopped(pid)
    record, took = ended_by(s, operation, 45)
    s.client.cmd("query-vm", name="vm")
    goes_on(pid)
    settled(s, seconds=60)
    runs_on(s, vm, before)
    record = ended(s, operation)
    equal(record["status"], "failed", f"status of {record}")
    return f"{record['error']['desc']}, {took:.1f} s"


@tag("faults")
@version
@deadline(240)
def test_stopped_while_saving(s):
    vm = s.boot()
    rows = Rows(s)
    rows.row("Preparing", stop_before_row, s, vm)
    mover_fault(s, vm, STALL)
    rows.row("Saving", stop_save_row, s, vm, None, "Saving")
    mover_fault(s, vm, None)
    rows.row("Syncing", stop_save_row, s, vm, "hibernate/fingerprint:silent", "Syncing")
    rows.done()


def stop_committed_row(s, vm):
    """After the commit a QEMU that does not end is killed."""
    before = vm.tick()
    operation = held(s, vm, "vm-hibernate", "hibernate/release-stream:silent", "Terminating",
                     timeout=20)
    stopped(qemu_pids()[0])
    record, took = ended_by(s, operation, 60)
    equal(record["status"], "succeeded", f"status of {record}")
    sleeps(s, vm)
    wakes(s, vm, before)
    return f"{took:.1f} s"


def stop_load_row(s, vm, fault, phase):
    """A QEMU that stands still in the restore is killed by its roll-back."""
    before = vm.tick()
    operation = held(s, vm, "vm-restore", fault, phase, timeout=6)
    stopped(poll(qemu_pids, 10, "QEMU")[0])
    record, took = ended_by(s, operation, 20)
    equal(record["status"], "failed", f"status of {record}")
    equal(record["error"]["class"], "Timeout", f"class of {record['error']}")
    settled(s)
    sleeps(s, vm)
    wakes(s, vm, before)
    return f"{record['error']['desc']}, {took:.1f} s"


@tag("faults")
@deadline(240)
def test_stopped_while_restoring(s):
    vm = s.boot()
    rows = Rows(s)
    rows.row("Terminating", stop_committed_row, s, vm)
    rows.row("Loading", stop_load_row, s, vm, "restore/load:silent", "Loading")
    rows.row("Resuming", stop_load_row, s, vm, "restore/hook-before-run:silent", "Resuming")
    rows.done()


@version
@deadline(150)
def test_stopped_while_running(s):
    """lost/monitor-lost at the latest when a daemon starts beside it; it comes back by itself."""
    vm = s.boot()
    before = vm.tick()
    pid = qemu_pids()[0]
    stopped(pid)
    s.client.err("vm-pause", ("Timeout", "QemuError"), name="vm", seconds=20)
    s.daemon.restart(kill=True)
    vm.wait_state("lost/monitor-lost", 30)
    s.client.err("vm-hibernate", "InvalidState", name="vm")
    goes_on(pid)
    vm.wait_state("running", 30)
    if vm.state() != "running/ok":
        vm.resume()
    before = vm.went_on(before)
    vm.hibernate()
    vm.restore()
    vm.went_on(before)


def test_quit_of_a_stopped_one(s):
    vm = s.boot()
    stopped(qemu_pids()[0])
    began = time.monotonic()
    s.client.cmd("vm-quit", name="vm", seconds=30)
    took = time.monotonic() - began
    check(took < 15, f"vm-quit took {took:.1f} s")
    vm.expect("shutoff/quit")
    s.qemu_io(vm, "read 0 512")
    no_image(s, vm)
    no_leftovers(s, 0)


@tag("faults")
def test_quit_of_a_stopped_one_while_saving(s):
    vm = s.boot()
    mover_fault(s, vm, STALL)
    operation = held(s, vm, "vm-hibernate", None, "Saving")
    poll(mover_pids, 10, "a mover")
    stopped(qemu_pids()[0])
    began = time.monotonic()
    s.client.cmd("vm-quit", name="vm", seconds=30)
    took = time.monotonic() - began
    check(took < 16, f"vm-quit took {took:.1f} s")
    vm.expect("shutoff/quit")
    record = ended(s, operation)
    check(record["status"] in ("failed", "cancelled"), f"record {record}")
    s.qemu_io(vm, "read 0 512")
    no_image(s, vm)
    no_leftovers(s, 0)
