# SPDX-License-Identifier: LGPL-2.1-or-later
"""The client as a person uses it: what it says, and its exit statuses."""

import os
import re
import threading

from lib import check, equal, matches, poll


def no_json(text):
    check(not re.search(r'{"|":|\[{', text), f"JSON is shown to people: {text}")


def labelled(text, label):
    """The first line with that label, without it."""
    for line in text.splitlines():
        if re.match(rf" *{re.escape(label)} ", line):
            return line.strip()[len(label):].strip()
    raise AssertionError(f"no line {label}: {text}")


def test_what_a_person_reads(s):
    vm = s.boot()
    dry = s.torpor("hibernate", "vm", "--dry-run").stdout
    no_json(dry)
    matches(dry, r"vm: nothing is in the way\n  at most +\S+ MiB\n")
    matches(labelled(dry, "phases"), "Pausing, Saving, Syncing")
    matches(labelled(dry, "guest halts"), r"^\d")
    checked = s.torpor("check", "vm").stdout
    equal(labelled(checked, "hibernate"), "yes")
    equal(labelled(checked, "restore"), "no")
    before = vm.tick()

    done = s.torpor("hibernate", "vm")
    matches(done.stdout, r"^vm: hibernated in [\d.]+ m?s, \S+ MiB of \S+ MiB, image vm-\S+\n$")
    matches(done.stderr, r"vm: Saving")
    check("100 %" in done.stderr or "99 %" in done.stderr or "Syncing" in done.stderr, done.stderr)
    image = vm.info()["image"]["id"]
    shown = s.torpor("show", "vm").stdout
    no_json(shown)
    equal(labelled(shown, "hibernation"), "Hibernated")
    check(image in labelled(shown, "image"), shown)
    equal(labelled(shown, "last exit"), "hibernated")
    checked = s.torpor("check", "vm").stdout
    matches(checked, r"^vm: hibernated \(save\)\nrestore +yes\n")
    equal(labelled(checked, "hibernate"), "nothing to do")
    equal(s.torpor("hibernate", "vm", "--dry-run").stdout, "vm: nothing to do\n")
    check(image in s.torpor("image", "ls", "-o", "wide").stdout, "the image is not listed")

    s.torpor("restore", "vm")
    vm.went_on(before)
    shown = s.torpor("show", "vm").stdout
    equal(labelled(shown, "hibernation"), "none now; the last one: Hibernated")
    operation = s.client.cmd("query-operations", vm="vm", limit=1)[0]["id"]
    shown = s.torpor("op", "show", operation).stdout
    no_json(shown)
    matches(labelled(shown, "result"), r"^\S+: ")
    host = s.torpor("host").stdout
    no_json(host)
    matches(host, r"(?m)^memory +\d")


def test_statuses(s):
    vm = s.vm(disk=False)
    vm.spec["launch"]["binary"] = "/nowhere/qemu"
    vm.define()
    for words, status in (
            (("ops", "nosuch"), 1), (("image", "ls", "nosuch"), 1), (("show", "nosuch"), 1),
            (("ls", "nosuch"), 1), (("hibernate", "nosuch"), 1),
            (("wait", "nosuch", "--for", "state=running"), 1),
            (("op", "show", "nosuch"), 1), (("image", "rm", "nosuch"), 1), (("log", "nosuch"), 1),
            (("check", "nosuch"), 1), (("console", "nosuch"), 1), (("undefine", "nosuch"), 1),
            (("ops", "vm"), 0), (("image", "ls", "vm"), 0), (("ls", "vm", "nosuch"), 6),
            (("hibernate", "vm"), 1), (("restore", "vm"), 1), (("start", "vm"), 1),
            (("hibernate", "vm", "--level", "99"), 2), (("start", "vm", "--timeout", "soon"), 2),
            (("start", "vm", "--timeout", "1e99"), 2), (("pause", "a/b"), 2), (("show", ".."), 2),
            (("image", "rm", "a b"), 2), (("image", "ls", "--pool", "a b"), 2),
            (("hibernate", "vm", "--pool", "a b"), 2),
            (("restore", "vm", "--allow", "anything"), 2),
            (("restore", "vm", "--image", "a b"), 2), (("events", "-e", "NONSENSE"), 2),
            (("ops", "vm", "--limit", "0"), 2),
            (("wait", "vm", "--for", "state=running", "--timeout", "0.1"), 4)):
        done = s.torpor(*words, status=status)
        if status:
            matches(done.stderr, r"(?m)^torpor: ")
        if status == 2:
            equal(done.stderr.count("\n"), 1, f"lines of {words}: {done.stderr}")
    s.torpor("--socket", "/nowhere/sock", "ls", status=3)


def test_define_warns(s):
    s.start()
    done = s.torpor("define", "vm", "--disk", f"d={s.path('later.qcow2')}", "--", s.path("qemu"),
                    "-M", "none")
    matches(done.stderr, r"warning: disk d: \S+later.qcow2 is not there")
    matches(done.stderr, r"warning: \S+/qemu is not there")
    s.torpor("undefine", "vm")


def test_wait_hears_of_the_failure(s):
    """The pool is too small: what wait is for does not come."""
    s.daemon.pools["default"] = s.tmpfs("small", "24M")
    vm = s.boot()
    vm.fill(64)
    waited = []
    waiter = threading.Thread(target=lambda: waited.append(
        s.torpor("wait", "vm", "--for", "state=hibernated", "--timeout", "100", status=None)))
    waiter.start()
    while waiter.is_alive():
        failed = s.torpor("hibernate", "vm", "--reserve", "none", status=1)
        matches(failed.stderr, "no space left")
        waiter.join(0.2)
    equal(waited[0].returncode, 1, waited[0].stderr)
    matches(waited[0].stderr, r"^torpor: vm: hibernate op-\d+ is failed: .*no space left")
    vm.expect("running")


def test_prune(s):
    """Two kept images, one never finished, one in use: prune takes what it is told to, no more."""
    vm = s.boot()
    kept = []
    for _ in range(2):
        kept.append(vm.hibernate(keep=True)["result"]["image"])
        vm.restore()
        vm.tick()
    own = vm.hibernate()["result"]["image"]
    s.daemon.stop()
    half = os.path.join(s.daemon.pool, "vm", "vm-20200101T000000Z-00dead")
    os.mkdir(half, 0o700)
    with open(os.path.join(half, "memory.zst"), "wb") as file:
        file.write(b"\0" * 4096)
    s.start()

    def ids():
        return sorted(image["id"] for image in s.client.cmd("query-images"))

    poll(lambda: len(ids()) >= 3, 10)
    here = ids()
    dry = s.torpor("prune", "--dry-run", "--kept", "--corrupt", "--orphans").stdout
    equal(ids(), here)
    for image in kept:
        matches(dry, rf"(?m)^{image}: would be deleted \(kept after its restore\)")
    check(own not in dry, f"the state of a hibernated VM is to go: {dry}")
    s.torpor("prune")
    equal(ids(), sorted([own, *kept]))
    matches(s.torpor("prune", "--kept").stdout, r"(?m)^freed \S+ MiB: 2 images$")
    equal(ids(), [own])
    equal(s.torpor("prune", "--kept").stdout, "nothing is to be deleted\n")
    before = vm.last_tick()
    vm.restore()
    vm.went_on(before)
