# SPDX-License-Identifier: LGPL-2.1-or-later
"""Each file call of torpord and its movers fails once: always the old or the new, and named."""

import errno
import os

from lib import TorporError, check, deadline, equal, poll, slow
from lib.faultlib import BOTH, FAIL, SHORT, FailCall
from lib.faults import MOVING, Rows, no_image, no_leftovers, one_image
from lib.tiny import TinyVm


def settled(vm):
    """Its state once no operation holds it."""
    def quiet():
        info = vm.cmd("query-vm")
        return info["operation"] is None and info["state"] not in MOVING + ("lost",) and info

    info = poll(quiet, 30, f"the end of {vm.name}'s operation")
    return f"{info['state']}/{info['reason']}"


def empty_journal(s, vm):
    log = os.path.join(s.daemon.state, "vms", vm.name, "op.log")
    check(not os.path.exists(log) or os.path.getsize(log) == 0, "the journal is not empty")


def named(error, number):
    """The user must be told what failed, not only that it did."""
    check(error.cls in ("IOError", "InsufficientSpace", "PermissionDenied"), f"class of {error}")
    check(os.strerror(number) in error.desc, f"the cause is not named: {error}")


class Row:
    """One verb under one rule; its error is the injected one, or it has none."""

    def __init__(self, fail, call, nth, error, part, action=FAIL):
        self.fail = fail
        # A journal's line that was written in part is taken for a full disk.
        self.number = errno.ENOSPC if action == SHORT else error
        self.rule = (call, action, error, part, nth)

    def run(self, verb):
        """Whether it succeeded, and what is said of it."""
        self.fail.rule(0, *self.rule)
        try:
            verb()
            error = None
        except TorporError as raised:
            error = raised
        struck = self.fail.disarm()
        if not struck:
            check(not error, f"failed without a fault: {error}")
            raise LookupError
        if error:
            named(error, self.number)
        return not error, f"{self.fail.hit()}: {error or 'succeeded all the same'}"


def hibernate_row(s, vm, row):
    good, said = row.run(vm.hibernate)
    equal(settled(vm), "hibernated/save" if good else "running/ok", "state")
    empty_journal(s, vm)
    if good:
        one_image(s, vm)
        vm.restore()
    vm.runs()
    no_image(s, vm)
    return said


def restore_row(s, vm, row):
    vm.hibernate()
    good, said = row.run(vm.restore)
    state = settled(vm)
    equal(state, "running/ok" if good else "hibernated/save", "state")
    empty_journal(s, vm)
    if not good:
        one_image(s, vm)
        vm.restore()
    vm.runs()
    for image in vm.images():
        # Used up, and its deletion failed: may be there, never offered.
        equal(image["state"], "consumed", f"image {image}")
        s.client.cmd("image-delete", image=image["id"])
    no_image(s, vm)
    return said


def define_row(s, vm, row):
    other = TinyVm(s, "other", disk=False)
    good, said = row.run(other.define)
    names = [info["name"] for info in s.client.cmd("query-vms")]
    equal(names, ["other", "vm"] if good else ["vm"], "VMs")
    s.daemon.restart(kill=True)
    names = [info["name"] for info in s.client.cmd("query-vms")]
    equal(names, ["other", "vm"] if good else ["vm"], "VMs after a restart")
    if good:
        other.cmd("vm-undefine")
    check(not os.path.exists(os.path.join(s.daemon.state, "vms", "other")), "its folder is left")
    vm.wait_state("running/ok")
    return said


class Walk:
    """A running VM whose verbs meet one fault after the other."""

    def __init__(self, s):
        self.s = s
        self.fail = FailCall(s)
        self.vm = TinyVm(s).start()
        self.rows = Rows(s)

    def row(self, one, call, error, part, nth, action):
        """False: the verb makes fewer such calls."""
        reached = [True]

        def attempt():
            try:
                return one(self.s, self.vm, Row(self.fail, call, nth, error, part, action))
            except LookupError:
                reached[0] = False
                return "not reached"
            finally:
                self.fail.disarm()

        good = self.rows.row(f"{call} {nth} {os.strerror(error)}", attempt)
        if self.vm.state() == "hibernated/save":
            self.vm.restore()
        return good and reached[0]

    def walk(self, one, call="*", error=errno.EIO, part=BOTH, step=1, action=FAIL):
        """The first, the (1 + step)th ... such call of the verb, until there are no more."""
        nth = 1
        while self.row(one, call, error, part, nth, action):
            nth += step
        check(nth > 1, f"no {call} in {part} at all")
        return self

    def done(self):
        self.rows.done()
        self.vm.wait_state("running/ok")
        no_leftovers(self.s, 1)


def test_calls_of_a_hibernation(s):
    """A part of them; all are slow."""
    Walk(s).walk(hibernate_row, step=8).done()


def test_calls_of_a_restore(s):
    Walk(s).walk(restore_row, step=10).done()


def test_calls_of_a_define(s):
    Walk(s).walk(define_row).done()


@slow
@deadline(400)
def test_each_call_of_a_hibernation(s):
    Walk(s).walk(hibernate_row).done()


@slow
@deadline(400)
def test_each_call_of_a_restore(s):
    Walk(s).walk(restore_row).done()


@slow
@deadline(400)
def test_full_at_each_write(s):
    walk = Walk(s)
    walk.walk(hibernate_row, "write", errno.ENOSPC).walk(hibernate_row, "pwrite", errno.ENOSPC)
    walk.walk(restore_row, "write", errno.EDQUOT).done()


@slow
@deadline(400)
def test_short_writes(s):
    """Half a write is no error: the rest follows, or what is there is cut off again."""
    walk = Walk(s)
    walk.walk(hibernate_row, "write", 7, action=SHORT).walk(hibernate_row, "pwrite", 7, action=SHORT)
    walk.walk(restore_row, "write", 7, action=SHORT).done()
