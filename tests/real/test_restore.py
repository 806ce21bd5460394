# SPDX-License-Identifier: LGPL-2.1-or-later
"""vm-restore: what brings a VM back, and what refuses to."""

import json
import os
import shutil
import signal
import time

from lib import check, equal, matches, poll, slow, version
from lib.proc import alive


@version
def test_restored_paused_then_resumed(s):
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    vm.restore(paused=True)
    vm.expect("paused/restored-paused")
    vm.silent()
    equal(vm.images()[0]["state"], "consumed", "image of a VM that has not run")
    vm.resume()
    vm.expect("running/ok")
    vm.went_on(before)
    poll(lambda: vm.images() == [], 10, "the end of the image")


def test_restored_paused_then_quit(s):
    """The guest never ran, so its image is as good as before."""
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    vm.restore(paused=True)
    vm.quit()
    vm.wait_state("hibernated/save")
    # The mark in the pool is taken away by the pool's worker.
    poll(lambda: vm.images()[0]["state"] == "complete", 20, "an image that is offered again")
    vm.restore()
    vm.went_on(before)


@version
def test_restored_paused_then_hibernated(s):
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    vm.restore(paused=True)
    vm.hibernate()
    vm.expect("hibernated/save")
    equal([image["state"] for image in vm.images()], ["complete"], "images")
    vm.restore()
    vm.resume()
    vm.went_on(before)


def test_restored_paused_and_kept(s):
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    image, = vm.images()
    vm.restore(paused=True, keep=True)
    vm.resume()
    vm.went_on(before)
    kept, = vm.images()
    equal((kept["id"], kept["state"]), (image["id"], "consumed"))


def test_given_back_once_its_pool_is_there(s):
    """QEMU of a VM that was restored paused ends while the pool is away."""
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    vm.restore(paused=True)
    s.daemon.kill()
    os.rename(s.daemon.pool, s.daemon.pool + ".away")
    with open(s.daemon.pool, "w", encoding="ascii"):
        pass
    s.daemon.start()
    vm.wait_state("paused/restored-paused")
    os.kill(vm.info()["pid"], 9)
    vm.wait_state("hibernated/save")
    s.client.err("vm-restore", "IOError", name="vm", wait=True)
    os.unlink(s.daemon.pool)
    os.rename(s.daemon.pool + ".away", s.daemon.pool)
    poll(lambda: "error" not in s.client.reply(s.client.send("vm-restore", name="vm", wait=True)),
         100, "the restore once the pool is back", every=0.5)
    vm.went_on(before)


def test_kept_image_is_not_used_twice(s):
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    record = vm.restore(keep=True)
    image, = vm.images()
    equal((image["state"], image["kind"]), ("consumed", "kept"))
    vm.went_on(before)
    vm.quit()
    vm.expect("shutoff/quit")
    s.client.err("vm-restore", "InvalidState", name="vm", wait=True)
    error = s.client.err("vm-restore", "StaleState", name="vm", image=image["id"], wait=True)
    matches(error.desc, "reused-image|stale-disks|restored before")
    vm.expect("shutoff/quit")
    vm.restore(image=image["id"], allow=["reused-image", "stale-disks"], keep=True)
    vm.went_on(before)
    check(record["result"]["running"] > 0, record["result"])
    vm.quit()
    s.client.cmd("image-delete", image=image["id"])
    equal(vm.images(), [])


def test_stale_disk(s):
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    s.qemu_io(vm, "write -P 0x5a 400M 64k")
    error = s.client.err("vm-restore", "StaleState", name="vm", wait=True)
    equal(error.data["disks"][0]["disk"], "disk0")
    check("disk0" in error.desc, error.desc)
    vm.expect("hibernated/save")
    plan = s.client.cmd("vm-restore", name="vm", dry_run=True)
    equal((plan["ok"], plan["blockers"][0]["class"]), (False, "StaleState"))
    equal(plan["warnings"], [], "nothing was allowed")
    equal(restorable(vm), ("False", "StaleState"), "as the dry run has just said")
    record = vm.restore(allow=["stale-disks"])
    matches(record["warnings"][0], "disk0 .*: allowed")
    vm.went_on(before)


def test_missing_disk(s):
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    os.rename(vm.disk, vm.disk + ".away")
    error = s.client.err("vm-restore", ("StaleState", "NotFound", "IOError"), name="vm", wait=True)
    check("disk0" in error.desc, error.desc)
    vm.expect("hibernated/save")
    plan = s.client.cmd("vm-restore", name="vm", allow=["stale-disks"], dry_run=True)
    equal((plan["ok"], [b["class"] for b in plan["blockers"]], plan["warnings"]),
          (False, ["StaleState"], []))
    matches(plan["blockers"][0]["desc"], "disk0: missing: .*cannot be allowed")
    equal(restorable(vm), ("False", "StaleState"))
    os.rename(vm.disk + ".away", vm.disk)
    vm.restore()
    vm.went_on(before)


def restorable(vm):
    condition, = [c for c in vm.info()["conditions"] if c["type"] == "Restorable"]
    return condition["status"], condition["reason"]


def put_right(s, vm):
    """An image in which a load met damage is corrupt until a verification finds it good."""
    if vm.images()[0]["state"] == "corrupt":
        s.client.cmd("image-verify", image=vm.images()[0]["id"], wait=True, seconds=90)


def damaged(s, vm, damage, known=False):
    """The image with a damage is Corrupt, the VM still hibernated; the good one still restores."""
    path = vm.image_file()
    backup = s.path("backup")
    shutil.copyfile(path, backup)
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        damage(file, size)
    for _ in range(2):
        error = s.client.err("vm-restore", "Corrupt", name="vm", wait=True)
        check("where" in error.data, f"no data.where: {error.data}")
        check(vm.images()[0]["id"] in error.desc, f"the image is not named: {error.desc}")
        vm.wait_state("hibernated/save")
    if known:
        s.daemon.restart(kill=True)
        poll(lambda: vm.images()[0]["state"] == "corrupt", 10, "the damage that the load met")
        poll(lambda: restorable(vm) == ("False", "Corrupt"), 10, "the condition")
    with open(backup, "rb") as good, open(path, "r+b") as file:
        shutil.copyfileobj(good, file)
        file.truncate(size)
    put_right(s, vm)


def flip(place):
    def damage(file, size):
        at = place(size)
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0x10]))
    return damage


def test_flipped_byte_in_the_middle(s):
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    damaged(s, vm, flip(lambda size: size // 2), known=True)
    equal(vm.images()[0]["state"], "complete")
    vm.restore()
    vm.went_on(before)


@slow
def test_flipped_bytes_elsewhere(s):
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    for place in (lambda size: 12, lambda size: 5000, lambda size: size - 5, lambda size: size - 200,
                  lambda size: size // 5):
        damaged(s, vm, flip(place))
    vm.restore()
    vm.went_on(before)


def test_truncated_image(s):
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    for part in (0, 0.3, 0.999):
        damaged(s, vm, lambda file, size, part=part: file.truncate(int(size * part)))
    vm.restore()
    vm.went_on(before)


def test_damaged_manifest(s):
    vm = s.boot()
    vm.hibernate()
    path = os.path.join(os.path.dirname(vm.image_file()), "manifest.json")
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) // 2)
    error = s.client.err("vm-restore", "Corrupt", name="vm", wait=True)
    check(error.desc, "no description")
    vm.expect("hibernated/save")
    s.daemon.restart(kill=True)
    vm.expect("hibernated/save")
    s.client.err("vm-restore", "Corrupt", name="vm", wait=True)
    s.client.cmd("vm-discard", name="vm")
    vm.expect("shutoff/discarded")


def test_missing_image(s):
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    os.rename(s.daemon.pool, s.daemon.pool + ".away")
    s.client.err("vm-restore", ("NotFound", "IOError"), name="vm", wait=True)
    vm.expect("hibernated/save")
    s.daemon.restart(kill=True)
    vm.expect("hibernated/save")
    s.client.err("vm-restore", ("NotFound", "IOError"), name="vm", wait=True)
    shutil.rmtree(s.daemon.pool, ignore_errors=True)
    os.rename(s.daemon.pool + ".away", s.daemon.pool)
    # Rechecked by itself: no restart of the daemon is needed.
    poll(lambda: "error" not in s.client.reply(s.client.send("vm-restore", name="vm", wait=True)),
         60, "the restore once the pool is back", every=0.5)
    vm.went_on(before)


def test_discard(s):
    vm = s.boot()
    nonce = vm.nonce
    vm.hibernate()
    error = s.client.err("vm-start", "InvalidState", name="vm", mode="boot", wait=True)
    check("use" in error.data, error.data)
    only = vm.images()[0]["id"]
    error = s.client.err("image-delete", "InvalidState", image=only)
    matches(error.desc, "discard")
    s.client.cmd("vm-discard", name="vm")
    vm.expect("shutoff/discarded")
    equal(vm.images(), [])
    mark = vm.mark()
    vm.start()
    check(vm.ready(mark) != nonce, "the discarded guest came back")
    vm.hibernate()
    mark = vm.mark()
    vm.start(mode="boot", discard_image=True)
    vm.ready(mark)
    equal(vm.images(), [])


def test_start_restores(s):
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    record = vm.start()
    equal(record["kind"], "restore")
    vm.went_on(before)


def test_image_of_another_vm(s):
    one = s.boot("one")
    one.hibernate()
    image = one.images()[0]["id"]
    two = s.vm("two")
    two.define()
    error = s.client.err("vm-restore", ("Incompatible", "NotFound"), name="two", image=image,
                         wait=True)
    check(error.desc, "no description")
    one.expect("hibernated/save")
    two.expect("shutoff/never-started")


def test_uid_is_new_after_undefine(s):
    vm = s.boot()
    uid, before = vm.info()["uid"], vm.tick()
    vm.hibernate()
    s.client.cmd("vm-undefine", name="vm", images="keep")
    vm.define()
    check(vm.info()["uid"] != uid, "the uid was given twice")
    vm.expect("shutoff/never-started")
    image, = vm.images()
    error = s.client.err("vm-restore", "Incompatible", name="vm", image=image["id"], wait=True)
    equal(error.data.get("reason"), "other-vm")
    vm.restore(image=image["id"], allow=["other-vm"])
    vm.went_on(before)


@version
def test_recorded_machine_and_vmgenid(s):
    vm = s.boot()
    genid = vm.monitor("query-vm-generation-id")
    vm.hibernate()
    with open(os.path.join(os.path.dirname(vm.image_file()), "manifest.json"),
              encoding="utf-8") as file:
        manifest = json.load(file)
    matches(json.dumps(manifest), rf'"pc-q35-{s.qemu}"', "the manifest")
    vm.restore()
    equal(vm.monitor("query-vm-generation-id"), genid, "vmgenid")


@version
def test_clock(s):
    vm = s.boot()
    check(vm.info()["agent"] != "none", "it has a channel, whether its agent is up or not")
    poll(lambda: vm.info()["agent"] == "connected", 20, "the agent")
    vm.hibernate()
    # What the guest misses is the time between here and its restore.
    asleep = time.monotonic() + 2
    poll(lambda: time.monotonic() > asleep, 5)
    record = vm.restore()
    clock = record["result"]["clock"]
    check(isinstance(clock, dict) and "after" in clock, f"result.clock {clock}")
    off = float(vm.ask("clock").split()[0]) - time.time()
    check(abs(off) < 1.5, f"the guest's clock is off by {off:.2f} s")
    vm.hibernate()
    asleep = time.monotonic() + 2
    poll(lambda: time.monotonic() > asleep, 5)
    vm.restore(clock="keep")
    off = float(vm.ask("clock").split()[0]) - time.time()
    check(off < -1, f"the guest's clock was set ({off:.2f} s) although it was to be kept")


@version
def test_without_agent_and_disk(s):
    vm = s.boot(disk=False, agent=False)
    before, sum_ = vm.tick(), vm.fill(8)
    equal(vm.info()["agent"], "none")
    vm.hibernate()
    vm.restore()
    vm.went_on(before)
    vm.verify(sum_)


def test_agent_after_restore(s):
    vm = s.boot()
    poll(lambda: vm.info()["agent"] == "connected", 20, "the agent")
    vm.hibernate()
    vm.restore()
    poll(lambda: vm.info()["agent"] == "connected", 20, "the agent after the restore")


def test_changed_spec_takes_effect_at_the_next_boot(s):
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    vm.spec["launch"]["args"][vm.spec["launch"]["args"].index("-m") + 1] = "320M"
    equal(vm.define()["generation"], 2)
    vm.restore()
    vm.went_on(before)
    info = vm.info()
    check(info["observed-generation"] < info["generation"] == 2, info["observed-generation"])
    vm.quit()
    mark = vm.mark()
    vm.start()
    vm.ready(mark)
    equal(vm.monitor("query-memory-size-summary")["base-memory"], 320 << 20)


@version
def test_cancel_while_loading(s):
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    operation = s.client.cmd("vm-restore", name="vm")["operation"]
    s.client.reply(s.client.send("operation-cancel", id=operation))
    status = s.client.cmd("operation-wait", id=operation, seconds=60)["status"]
    if status == "cancelled":
        vm.wait_state("hibernated/save")
        check(vm.info()["pid"] is None, "QEMU is still there")
        vm.restore()
    vm.went_on(before)


@version
def test_qemu_killed_while_loading(s):
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    events = s.connect()
    operation = s.client.cmd("vm-restore", name="vm")["operation"]
    events.event("OPERATION", lambda data: data["phase"] == "Loading")
    pid = vm.info()["pid"]
    if pid:
        os.kill(pid, signal.SIGKILL)
    record = s.client.cmd("operation-wait", id=operation, seconds=60)
    if record["status"] == "failed":
        equal(record["error"]["class"], "QemuExited", record["error"])
        vm.wait_state("hibernated/save")
        equal(vm.images()[0]["state"], "complete")
        vm.restore()
        vm.went_on(before)
    else:
        vm.wait_state("crashed")


@version
def test_daemon_killed_while_loading(s):
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    events = s.connect()
    s.client.cmd("vm-restore", name="vm")
    events.event("OPERATION", lambda data: data["phase"] in ("Launching", "Loading"))
    s.daemon.restart(kill=True)
    poll(lambda: vm.info()["operation"] is None, 40, "the end of the operation")
    poll(lambda: vm.state() in ("running/ok", "hibernated/save"), 20, "a good state")
    if vm.info()["state"] == "hibernated":
        vm.restore()
    vm.went_on(before)


def test_qemu_refuses_the_image(s):
    """The recorded binary is gone: QEMU's or the system's words are in the error."""
    vm = s.vm()
    link = s.path("qemu-link")
    with open(link, "w", encoding="ascii") as file:
        file.write(f'#!/bin/sh\nexec {vm.spec["launch"]["binary"]} "$@"\n')
    os.chmod(link, 0o700)
    vm.spec["launch"]["binary"] = link
    vm.boot()
    before = vm.tick()
    pid = vm.info()["pid"]
    vm.hibernate()
    check(not alive(pid), "QEMU is still there")
    with open(link, "r+", encoding="ascii") as file:
        text = file.read()
        file.seek(0)
        file.truncate()
        file.write("#!/bin/sh\necho the cable is loose >&2\nexit 7\n")
    error = s.client.err("vm-restore", "QemuExited", name="vm", wait=True)
    check("the cable is loose" in str(error), error)
    equal(error.data.get("code"), 7, "data.code")
    vm.wait_state("hibernated/save")
    with open(link, "w", encoding="ascii") as file:
        file.write(text)
    vm.restore()
    vm.went_on(before)
