# SPDX-License-Identifier: LGPL-2.1-or-later
"""Damaged records of one VM: that VM says so, the others are as they were, there is a way out."""

import os
import re

from lib import check, deadline, equal, matches, poll, tag, version
from lib.faults import (Rows, armed, killed, no_leftovers, one_image, qemu_pids, revive, runs_on,
                        send_and_die, settled)

GARBAGE = b"\x00\xff{]" * 40


def record(s, name, vm="vm"):
    return os.path.join(s.daemon.state, "vms", vm, name)


def cut(path):
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) // 2)


def garble(path):
    with open(path, "wb") as file:
        file.write(GARBAGE)


def empty(path):
    with open(path, "wb"):
        pass


def other_json(path):
    with open(path, "wb") as file:
        file.write(b"[1, 2, 3]\n")


DAMAGES, MORE_DAMAGES = (cut, other_json), (garble, empty)


def set_aside(s, vm="vm"):
    return [name for name in os.listdir(record(s, "", vm)) if ".bad-" in name]


def forget_set_aside(s):
    for name in set_aside(s):
        os.unlink(record(s, name))


def damaged(s, name, how):
    """The daemon is killed, a record damaged, the daemon started."""
    s.daemon.kill()
    how(record(s, name))
    revive(s)


def state_row(s, vm, other, how):
    before, others = vm.tick(), other.tick()
    pid = vm.info()["pid"]
    damaged(s, "state.json", how)
    vm.wait_state("lost/record-damaged", 15)
    check("state.json" in s.daemon.log(), "the log does not name the file")
    other.wait_state("running/ok")
    other.went_on(others)
    vm.went_on(before)      # nobody touched the guest
    s.client.err("vm-hibernate", "InvalidState", name="vm")
    s.client.err("vm-start", "InvalidState", name="vm")
    equal(vm.info()["resolve"] is not None, True, "query-vm.resolve")
    s.client.cmd("vm-resolve", name="vm", owner="here", seconds=20)
    vm.wait_state("running/ok")
    equal(vm.info()["pid"], pid, "pid")
    before = vm.went_on(before)
    # What was started, only the lost record knew: a save of it is right or refused, never wrong.
    reply = s.client.reply(s.client.send("vm-hibernate", name="vm", wait=True), 60)
    if "error" in reply:
        settled(s)
        vm.expect("running/ok")
        vm.went_on(before)
        said = f"{reply['error']['class']}: {reply['error']['desc']}"
    else:
        vm.restore()
        vm.went_on(before)
        said = "hibernated and restored"
    forget_set_aside(s)
    s.client.cmd("vm-quit", name="vm")
    mark = vm.mark()
    vm.start()
    vm.ready(mark)
    no_leftovers(s, 2)
    return said


@deadline(180)
def test_damaged_state(s):
    vm, other = s.boot(), s.boot("other")
    rows = Rows(s)
    for how in s.rows(DAMAGES, MORE_DAMAGES):
        if not rows.row(how.__name__, state_row, s, vm, other, how):
            break
    rows.done()


def test_damaged_state_nobody(s):
    """--owner nobody ends what there is."""
    vm = s.boot()
    damaged(s, "state.json", garble)
    vm.wait_state("lost/record-damaged", 15)
    s.client.cmd("vm-resolve", name="vm", owner="nobody", seconds=20)
    vm.expect("shutoff")
    check(not qemu_pids(), "QEMU is left")
    s.qemu_io(vm, "read 0 512")
    forget_set_aside(s)
    no_leftovers(s, 0)
    vm.start()
    vm.expect("running/ok")


def test_damaged_state_while_hibernated(s):
    """The image outlives its VM's record."""
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    damaged(s, "state.json", cut)
    state = vm.state()
    if state == "lost/record-damaged":
        s.client.cmd("vm-resolve", name="vm", owner="nobody", seconds=20)
    one_image(s, vm)
    forget_set_aside(s)
    image = vm.images()[0]["id"]
    if vm.state().startswith("hibernated"):
        vm.restore()
    else:
        vm.restore(image=image)
    runs_on(s, vm, before)


def spec_row(s, vm, other, how):
    before, others = vm.tick(), other.tick()
    spec = vm.info()["spec"]
    path = record(s, "spec.json")
    with open(path, "rb") as file:
        good = file.read()
    damaged(s, "spec.json", how)
    vm.wait_state("lost/record-damaged", 15)
    other.wait_state("running/ok")
    other.went_on(others)
    vm.went_on(before)
    s.client.err("vm-hibernate", "InvalidState", name="vm")
    # The record from a backup: all is as before.
    s.daemon.kill()
    with open(path, "wb") as file:
        file.write(good)
    revive(s)
    vm.wait_state("running/ok")
    equal(vm.info()["spec"], spec, "spec")
    vm.went_on(before)
    forget_set_aside(s)
    no_leftovers(s, 2)


@deadline(150)
def test_damaged_spec(s):
    vm, other = s.boot(), s.boot("other")
    rows = Rows(s)
    for how in s.rows(DAMAGES, MORE_DAMAGES):
        if not rows.row(how.__name__, spec_row, s, vm, other, how):
            break
    rows.done()


def test_damaged_spec_of_a_vm_that_rests(s):
    """Without a QEMU too the other record is not overwritten: hibernated stays hibernated."""
    vm = s.boot()
    before = vm.tick()
    path = record(s, "spec.json")
    with open(path, "rb") as file:
        good = file.read()
    vm.hibernate()
    damaged(s, "spec.json", garble)
    vm.wait_state("lost/record-damaged", 15)
    s.client.err("vm-restore", "InvalidState", name="vm")
    s.client.err("vm-start", "InvalidState", name="vm")
    s.daemon.restart()
    vm.wait_state("lost/record-damaged", 15)
    s.daemon.kill()
    with open(path, "wb") as file:
        file.write(good)
    revive(s)
    vm.expect("hibernated/save")
    vm.restore()
    vm.went_on(before)
    # Its QEMU ends while nobody looks: what that means is recorded all the same.
    s.daemon.kill()
    garble(path)
    killed(s, qemu_pids()[0])
    revive(s)
    vm.wait_state("lost/record-damaged", 15)
    s.daemon.kill()
    with open(path, "wb") as file:
        file.write(good)
    revive(s)
    vm.wait_state("crashed/exited", 15)
    mark = vm.mark()
    vm.start()
    vm.ready(mark)
    vm.hibernate()
    # Resolved without a backup it is what its own record says.
    damaged(s, "spec.json", garble)
    vm.wait_state("lost/record-damaged", 15)
    s.client.cmd("vm-resolve", name="vm", owner="nobody", seconds=20)
    vm.expect("hibernated/save")
    one_image(s, vm)


def test_damaged_spec_defined_anew(s):
    """Without a backup: resolve, define again, start."""
    vm = s.boot()
    damaged(s, "spec.json", garble)
    vm.wait_state("lost/record-damaged", 15)
    s.client.cmd("vm-resolve", name="vm", owner="nobody", seconds=20)
    check(not qemu_pids(), "QEMU is left")
    vm.define()
    s.daemon.restart(kill=True)
    vm.expect("shutoff")
    mark = vm.mark()
    vm.start()
    vm.ready(mark)
    forget_set_aside(s)


def journal_row(s, vm, how):
    """Nothing was under way: the log is set aside, or of no matter; the VM is what QEMU says."""
    before = vm.tick()
    damaged(s, "op.log", how)
    vm.wait_state("running/ok", 15)
    vm.went_on(before)
    aside = set_aside(s)
    forget_set_aside(s)
    if how in (garble, other_json):
        equal(len(aside), 1, "logs set aside")
        matches(aside[0], r"^op\.log\.bad-", "its name")
        check(re.search(r"journal set aside", s.daemon.log()), "the daemon's log does not say it")
    vm.hibernate()
    vm.restore()
    vm.went_on(before)


def cut_journal_row(s, vm, how):
    """The journal of an operation that was under way. torpor neither pauses nor continues the guest."""
    before = vm.tick()
    armed(s, "hibernate/fingerprint:die-before")
    vm.wait_state("running/ok")
    send_and_die(s, "vm-hibernate", name="vm")
    how(record(s, "op.log"))
    revive(s)
    # Until its monitor has answered, the VM is shown as its record left it.
    poll(lambda: s.client.cmd("query-vm", name="vm")["running"] or vm.state().startswith("paused"), 30)
    info = settled(s)
    state = f"{info['state']}/{info['reason']}"
    aside = set_aside(s)
    forget_set_aside(s)
    check(info["state"] in ("running", "paused"), f"state {state}")
    if info["state"] == "paused":
        vm.resume()
    vm.went_on(before)
    if how is garble:
        equal(len(aside), 1, "logs set aside")
    vm.hibernate()
    one_image(s, vm)
    vm.restore()
    runs_on(s, vm, before)
    return state


def torn(path):
    """The last record is torn, as after a power cut; those before it are good."""
    with open(path, "r+b") as file:
        file.truncate(len(file.read().rstrip(b"\0")) - 7)


@version
@tag("faults")
@deadline(150)
def test_damaged_journal(s):
    vm = s.boot()
    rows = Rows(s)
    for how in s.rows((garble,), (other_json, empty)):
        rows.row(f"idle {how.__name__}", journal_row, s, vm, how)
    for how in s.rows((torn, garble), (empty,)):
        rows.row(f"cut {how.__name__}", cut_journal_row, s, vm, how)
    rows.done()


@tag("faults")
def test_damaged_journal_after_the_commit(s):
    """A committed image and a journal that cannot be read: never both guest and image offered."""
    vm = s.boot()
    before = vm.tick()
    armed(s, "hibernate/release-stream:die-before")
    vm.wait_state("running/ok")
    send_and_die(s, "vm-hibernate", name="vm")
    garble(record(s, "op.log"))
    killed(s, qemu_pids()[0])
    revive(s)
    info = settled(s)
    check(info["state"] in ("crashed", "hibernated"), f"state {info['state']}")
    image = vm.images()
    equal([entry["state"] for entry in image], ["complete"], "images")
    forget_set_aside(s)
    if info["state"] == "crashed":
        s.client.cmd("vm-quit", name="vm")
        vm.restore(image=image[0]["id"])
    else:
        vm.restore()
    runs_on(s, vm, before)
