# SPDX-License-Identifier: LGPL-2.1-or-later
"""Full, read-only and missing pools, a full state folder, file calls that fail one at a time."""

import os
import re
import shutil
import subprocess

from lib import Skip, TorporError, check, deadline, equal, poll, slow, tag
from lib.faultlib import FailCall
from lib.faults import (Rows, ended, failed, no_image, no_leftovers, one_image, runs_on, settled,
                        sleeps, wakes)

MIB = 1 << 20
EIO, ENOSPC, EROFS = 5, 28, 30


def use_pool(s, folder):
    s.daemon.pool = folder
    s.daemon.pools["default"] = folder


def use_state(s, folder):
    s.daemon.state = folder


def remount(s, folder, how):
    """With the daemon away, as a mount with open files cannot be made read-only."""
    s.daemon.stop()
    done = subprocess.run(["mount", "-o", f"remount,{how}", folder], capture_output=True, text=True,
                          check=False)
    s.daemon.start()
    if done.returncode:
        raise Skip(f"cannot be remounted here: {done.stderr.strip()}")


def watch_stops(s):
    """A connection that is told each STOP of QEMU."""
    watch = s.connect()
    watch.cmd("event-filter", events=["QEMU_EVENT"])
    return watch


def never_stopped(watch):
    watch.drain()
    stops = [event for event in watch.events
             if event["event"] == "QEMU_EVENT" and event["data"]["event"] == "STOP"]
    check(not stops, f"the guest was paused: {stops}")


def refused(s, vm, cls, **arguments):
    """A hibernation that fails without pausing the guest; its error."""
    before = vm.tick()
    watch = watch_stops(s)
    error = s.client.err("vm-hibernate", cls, name="vm", wait=True, **arguments)
    never_stopped(watch)
    watch.close()
    settled(s)
    vm.expect("running/ok")
    vm.went_on(before)
    return error


def test_pool_too_small(s):
    """InsufficientSpace before the guest is touched; without a reservation, in the middle."""
    use_pool(s, s.tmpfs("small", "6m"))
    vm = s.boot()
    vm.fill(32)
    error = refused(s, vm, "InsufficientSpace")
    check(error.data["required"] > error.data["available"], f"data {error.data}")
    check(error.data["available"] <= 6 * MIB, f"available {error.data}")
    no_image(s, vm)

    before = vm.tick()
    error = s.client.err("vm-hibernate", ("InsufficientSpace", "IOError"), name="vm", wait=True,
                         reserve="none", seconds=60)
    check(re.search(r"[Ss]pace|full", error.desc), f"the cause is not named: {error.desc}")
    settled(s)
    runs_on(s, vm, before)
    vm.verify()


def test_pool_full_by_others(s):
    """What others left free decides; once they are gone it works."""
    folder = s.tmpfs("pool400", "400m")
    use_pool(s, folder)
    vm = s.boot()
    with open(os.path.join(folder, "others"), "wb") as file:
        os.posix_fallocate(file.fileno(), 0, 200 * MIB)
    refused(s, vm, "InsufficientSpace")
    os.unlink(os.path.join(folder, "others"))
    before = vm.tick()
    vm.hibernate()
    one_image(s, vm)
    # The consumption of an image needs no room.
    with open(os.path.join(folder, "others"), "wb") as file:
        stat = os.statvfs(folder)
        os.posix_fallocate(file.fileno(), 0, stat.f_bavail * stat.f_frsize)
    vm.restore()
    vm.went_on(before)
    os.unlink(os.path.join(folder, "others"))
    no_image(s, vm)


def test_pool_read_only(s):
    folder = s.tmpfs("ropool", "500m")
    use_pool(s, folder)
    vm = s.boot()
    remount(s, folder, "ro")
    vm.wait_state("running/ok")
    error = refused(s, vm, ("IOError", "InsufficientSpace"))
    check(re.search(r"[Rr]ead-only", error.desc), f"the cause is not named: {error.desc}")
    remount(s, folder, "rw")
    vm.wait_state("running/ok")
    no_image(s, vm)
    before = vm.tick()
    vm.hibernate()
    remount(s, folder, "ro")
    # An image that cannot be marked as used is not run.
    error = s.client.err("vm-restore", "IOError", name="vm", wait=True, seconds=60)
    check(re.search(r"[Rr]ead-only", error.desc), f"the cause is not named: {error.desc}")
    settled(s)
    vm.expect("hibernated/save")
    remount(s, folder, "rw")
    sleeps(s, vm)
    wakes(s, vm, before)


def test_pool_becomes_read_only(s):
    """Seen at the first thing that is made in it: the guest is not touched."""
    fail = FailCall(s)
    vm = s.boot()
    fail.arm("mkdir", 1, EROFS, "/pool/")
    error = refused(s, vm, "IOError")
    check(fail.disarm(), "no folder was made in the pool")
    check(re.search(r"[Rr]ead-only", error.desc), f"the cause is not named: {error.desc}")
    runs_on(s, vm, vm.tick())


@slow
def test_pool_gone(s):
    """A pool whose folder is not there: refused; back again: all is as before."""
    vm = s.boot()
    away = s.daemon.pool + ".away"
    os.rename(s.daemon.pool, away)
    try:
        s.daemon.restart()
        vm.wait_state("running/ok")
        check(not os.path.exists(s.daemon.pool), "an absent pool was made anew")
        error = refused(s, vm, "IOError")
        check("where it was before" in error.desc, f"the cause is not named: {error.desc}")
    finally:
        shutil.rmtree(s.daemon.pool, ignore_errors=True)
        os.rename(away, s.daemon.pool)
    s.daemon.restart()
    vm.wait_state("running/ok")
    before = vm.tick()
    vm.hibernate()
    sleeps(s, vm)
    wakes(s, vm, before)


def fill_up(folder):
    """Not a byte is left, and not a page for a small file either."""
    path = os.path.join(folder, "filler")
    with open(path, "ab", buffering=0) as file:
        for size in (1 << 16, 4096, 512, 1):
            while True:
                try:
                    if file.write(b"x" * size) < size:
                        break
                except OSError:
                    break
    return path


def settled_somehow(s, vm, before):
    """Running with its guest or hibernated with its image: nothing else."""
    info = settled(s, seconds=40)
    if info["state"] == "running":
        vm.went_on(before)
        no_image(s, vm)
    else:
        equal(f"{info['state']}/{info['reason']}", "hibernated/save", "state")
        one_image(s, vm)
    return info["state"]


def test_state_folder_full(s):
    """Full before a hibernation, before a restore, and over a restart: no VM is lost."""
    folder = s.tmpfs("smallstate", "3m")
    use_state(s, folder)
    vm = s.boot()
    before = vm.tick()
    filler = fill_up(folder)
    try:
        vm.hibernate()
    except TorporError as error:
        print(f"hibernate: {error}")
    if settled_somehow(s, vm, before) == "running":
        s.daemon.restart(kill=True)
        vm.wait_state("running/ok")
        os.unlink(filler)
        vm.hibernate()
        filler = fill_up(folder)
    else:
        s.daemon.restart(kill=True)
    vm.expect("hibernated/save")
    try:
        vm.restore()
    except TorporError as error:
        print(f"restore: {error}")
    state = settled_somehow(s, vm, before)
    s.daemon.restart(kill=True)
    equal(settled_somehow(s, vm, before), state, "state after a restart")
    os.unlink(filler)
    if state == "hibernated":
        vm.restore()
    runs_on(s, vm, before)
    before = vm.tick()
    vm.hibernate()
    sleeps(s, vm)
    wakes(s, vm, before)


# --- file calls that fail one at a time ---


def outcome(s, operation):
    record = ended(s, operation)
    if record["status"] == "succeeded":
        return "succeeded", record
    check(record["error"]["desc"], f"no words: {record}")
    return f"{record['error']['class']}: {record['error']['desc']}", record


def failing_save_row(s, vm, fail, call, nth, error, part):
    before = vm.tick()
    fail.arm(call, nth, error, part)
    try:
        operation = s.client.cmd("vm-hibernate", name="vm")["operation"]
        said, record = outcome(s, operation)
    except TorporError as refusal:
        said, record = f"refused: {refusal}", None
    struck = fail.disarm()
    state = settled_somehow(s, vm, before)
    equal(state, "hibernated" if record and record["status"] == "succeeded" else "running", "state")
    # What it says must hold after a kill -9, too.
    s.daemon.restart(kill=True)
    equal(settled_somehow(s, vm, before), state, "state after a restart")
    if state == "hibernated":
        vm.restore()
    vm.went_on(before)
    no_image(s, vm)
    if not struck:
        raise LookupError
    return said


def failing_restore_row(s, vm, fail, call, nth, error, part):
    before = vm.tick()
    vm.hibernate()
    fail.arm(call, nth, error, part)
    try:
        operation = s.client.cmd("vm-restore", name="vm")["operation"]
        said, _ = outcome(s, operation)
    except TorporError as refusal:
        said = f"refused: {refusal}"
    struck = fail.disarm()
    state = settled_somehow(s, vm, before) if said != "succeeded" else settled(s)["state"]
    check(said != "succeeded" or state == "running", f"succeeded, but {state}")
    if state == "running":
        vm.went_on(before)
    s.daemon.restart(kill=True)
    equal(settled(s)["state"], state, "state after a restart")
    if state == "hibernated":
        vm.restore()
    vm.went_on(before)
    for image in vm.images():
        # Used up, and its deletion failed: may be there, never offered.
        equal(image["state"], "consumed", f"image {image}")
        s.client.cmd("image-delete", image=image["id"])
    if not struck:
        raise LookupError
    return said


def walk(s, row, call, error, part, most=60):
    """Each call of that kind in an operation fails, one after the other, until there is none left."""
    fail = FailCall(s)
    vm = s.boot()
    rows = Rows(s)
    for nth in range(1, most):
        over = []

        def one(number=nth, over=over):
            try:
                return row(s, vm, fail, call, number, error, part)
            except LookupError:
                over.append(number)
                return "not reached"

        if not rows.row(f"{call} {nth} {os.strerror(error)} in {part}", one):
            break
        if over:
            check(nth > 1, f"no {call} in {part} at all")
            break
    rows.done()
    no_leftovers(s, 1)


@slow
@deadline(300)
def test_failing_fsync_while_hibernating(s):
    walk(s, failing_save_row, "fsync", EIO, "/tr.")


@slow
@deadline(150)
def test_failing_journal_sync_while_hibernating(s):
    walk(s, failing_save_row, "fdatasync", EIO, "/state/")


@slow
@deadline(240)
def test_full_write_while_hibernating(s):
    walk(s, failing_save_row, "write", ENOSPC, "/state/")


@slow
@deadline(150)
def test_failing_rename_while_hibernating(s):
    walk(s, failing_save_row, "rename", EIO, "/tr.")


@slow
@deadline(200)
def test_failing_fsync_while_restoring(s):
    walk(s, failing_restore_row, "fsync", EIO, "/tr.")


@slow
@deadline(240)
def test_full_write_while_restoring(s):
    walk(s, failing_restore_row, "write", ENOSPC, "/state/")


@slow
@deadline(150)
def test_failing_rename_while_restoring(s):
    walk(s, failing_restore_row, "rename", EIO, "/tr.")


@slow
@deadline(150)
def test_failing_unlink_while_restoring(s):
    walk(s, failing_restore_row, "unlink", EIO, "/pool/")


@tag("faults")
def test_failing_unlink_in_the_roll_back(s):
    """A manifest that cannot be removed keeps the guest stopped: both at once must never be."""
    fail = FailCall(s)
    s.start()
    s.daemon.stop()
    s.daemon.start({"TORPOR_FAULT": "hibernate/write-manifest:fail"})
    vm = s.boot()
    before = vm.tick()
    fail.arm("unlink", 1, EIO, "/manifest.json")
    operation = s.client.cmd("vm-hibernate", name="vm")["operation"]
    poll(lambda: s.client.cmd("query-operation", id=operation)["status"] != "running", 20)
    struck = fail.disarm()
    check(struck, "no manifest was unlinked")
    poll(lambda: s.client.cmd("query-operation", id=operation)["status"] == "failed", 30,
         "the end of the roll-back")
    failed(s, operation)
    settled(s)
    runs_on(s, vm, before)
