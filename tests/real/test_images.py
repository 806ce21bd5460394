# SPDX-License-Identifier: LGPL-2.1-or-later
"""Images: verified, moved between pools, kept and thrown away; what damage does to them."""

import json
import os
import signal
import time

from lib import check, equal, matches, poll, slow, tag, unchanged
from lib.faults import (armed, ended, failed, mover_fault, mover_pids, revive, send_and_die, settled,
                        sleeps, wait_phase)

MIB = 1 << 20


def images(s, vm="vm", **filters):
    return s.client.cmd("query-images", vm=vm, **filters)


def image(s, vm="vm"):
    """The one image of a VM; unfinished copies aside."""
    found = [one for one in images(s, vm) if one["state"] != "partial"]
    equal(len(found), 1, f"images {found}")
    return found[0]


def copies(s, vm="vm"):
    return images(s, vm, state="partial")


def condition(s, name="vm", type_="Restorable"):
    conditions = s.client.cmd("query-vm", name=name)["conditions"]
    return [one for one in conditions if one["type"] == type_][0]


def wait_condition(s, status, name="vm", seconds=20):
    poll(lambda: condition(s, name)["status"] == status, seconds, f"Restorable {status}")
    return condition(s, name)


def verify(s, id_, **arguments):
    return s.client.cmd("image-verify", image=id_, wait=True, seconds=120, **arguments)


def move(s, id_, pool, **arguments):
    return s.client.cmd("image-move", image=id_, pool=pool, wait=True, seconds=120, **arguments)


def second_pool(s, folder=None):
    s.daemon.pools["other"] = folder or s.path("other")


class Bytes:
    """Bytes of a file inverted, and put back."""

    def __init__(self, path, offset, count=1):
        self.path, self.offset = path, offset
        with open(path, "rb") as file:
            file.seek(offset)
            self.good = file.read(count)

    def write(self, data):
        with open(self.path, "r+b") as file:
            file.seek(self.offset)
            file.write(data)

    def __enter__(self):
        self.write(bytes(byte ^ 0xff for byte in self.good))
        return self

    def __exit__(self, *_):
        self.write(self.good)


# --- verification ---


def test_verified_and_damaged(s):
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    wait_condition(s, "True")
    one = image(s)
    equal((one["state"], one["verified"], one["why-not"], one["path"]),
          ("complete", None, None, os.path.dirname(vm.image_file())))
    record = verify(s, one["id"])
    equal((record["kind"], record["phase"], record["vm"]), ("image-verify", "Verified", "vm"))
    result = record["result"]
    equal((result["image"], result["bytes"], result["raw-bytes"]),
          (one["id"], one["bytes"], one["raw-bytes"]))
    check(result["frames"] > 100 and result["pages"] > 10000 and result["seconds"] > 0, result)
    good = image(s)
    check(good["verified"] >= record["started"], good)

    with Bytes(vm.image_file(), one["bytes"] // 2):
        error = s.client.err("image-verify", "Corrupt", image=one["id"], wait=True, seconds=120)
        equal((error.data["image"], error.data["damaged"]), (one["id"], 1))
        damage, = error.data["damage"]
        check(damage["offset"] <= one["bytes"] // 2 < damage["offset"] + damage["length"], damage)
        check(damage["frame"] > 0, damage)
        s.client.event("IMAGE", lambda data: data["state"] == "corrupt")
        bad = image(s)
        equal((bad["state"], bad["restorable"], bad["verified"]), ("corrupt", False, None))
        matches(bad["why-not"], "damaged: ")
        equal(wait_condition(s, "False")["reason"], "Corrupt")
        s.client.event("CONDITION", lambda data: data["type"] == "Restorable"
                       and data["status"] == "False")
        s.daemon.restart(kill=True)
        equal(image(s)["state"], "corrupt", "after a restart")
        equal(wait_condition(s, "False")["reason"], "Corrupt", "after a restart")
        refused = s.client.err("vm-restore", "Corrupt", name="vm", wait=True)
        matches(refused.desc, "damaged: .*image-verify")
        equal(refused.data["damage"], [damage])
        vm.expect("hibernated/save")
    verify(s, one["id"])
    equal(image(s)["state"], "complete")
    wait_condition(s, "True")
    vm.restore(keep=True)
    vm.went_on(before)
    # A kept one as well; and one whose VM is no more.
    verify(s, one["id"])
    equal(image(s)["state"], "consumed")
    vm.quit()
    s.client.cmd("vm-undefine", name="vm", images="keep")
    s.vms.remove(vm)
    verify(s, one["id"])
    s.client.cmd("image-delete", image=one["id"])
    s.client.err("image-verify", "NotFound", image=one["id"])
    vm.close()


@slow
def test_manifest_that_disagrees(s):
    """A manifest that is good by itself and does not describe the image."""
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    one = image(s)
    path = os.path.join(one["path"], "manifest.json")
    with open(path, encoding="utf-8") as file:
        good = file.read()
    for member, value in (("raw-bytes", 4096), ("machine", "pc-q35-1.0"), ("ram", None)):
        manifest = json.loads(good)
        if value is None:
            manifest["ram"]["blocks"][0]["bytes"] += 4096
        else:
            manifest[member] = value
        with open(path, "w", encoding="utf-8") as file:
            json.dump(manifest, file)
        error = s.client.err("image-verify", "Corrupt", image=one["id"], wait=True, seconds=120)
        matches(error.desc, f'disagree on "{member}')
        equal(error.data["where"], "manifest.json")
        equal(image(s)["state"], "corrupt")
    with open(path, "w", encoding="utf-8") as file:
        file.write(good)
    verify(s, one["id"])
    vm.restore()
    vm.went_on(before)


def _with_status(s, ids, status):
    return [id_ for id_ in ids if s.client.cmd("query-operation", id=id_)["status"] == status]


@tag("faults")
def test_verification_runs_beside(s):
    vm = s.boot()
    before = vm.tick()
    vm.hibernate(keep=True)
    id_ = image(s)["id"]
    mover_fault(s, vm, "stall-at-bytes:1000000")
    ids = [s.client.cmd("image-verify", image=id_)["operation"] for _ in range(3)]
    for operation in ids[:2]:
        wait_phase(s, operation, "Verifying")
    equal(s.client.cmd("query-operation", id=ids[2])["phase"], "Pending")
    poll(lambda: len(mover_pids()) == 2, 20, "two movers")
    equal(s.client.err("image-delete", "Busy", image=id_).data["kind"], "image-verify")
    # The VM is not held by them.
    vm.restore()
    vm.went_on(before)
    equal(vm.info()["operation"], None)
    began = time.monotonic()
    s.client.cmd("operation-cancel", id=ids[0])
    equal(ended(s, ids[0])["status"], "cancelled")
    check(time.monotonic() - began < 5, "the end of a cancelled verification")
    wait_phase(s, ids[2], "Verifying")
    os.kill(mover_pids()[0], signal.SIGKILL)
    poll(lambda: len(_with_status(s, ids[1:], "failed")) == 1, 20,
         "the failure of the one whose mover died")
    left = _with_status(s, ids[1:], "running")
    # Its end with the daemon's: in order it says so, killed it is gone.
    s.daemon.restart()
    equal(s.client.cmd("query-operation", id=left[0])["status"], "cancelled")
    again = s.client.cmd("image-verify", image=id_)["operation"]
    wait_phase(s, again, "Verifying")
    s.daemon.restart(kill=True)
    s.client.err("query-operation", "NotFound", id=again)
    mover_fault(s, vm, None)
    poll(lambda: not mover_pids(), 20, "the end of the movers")
    equal(image(s)["verified"], None)
    vm.quit()
    s.client.cmd("image-delete", image=id_)


# --- moving ---


def test_moved_and_restored(s):
    second_pool(s)
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    one = image(s)
    verify(s, one["id"])
    s.client.err("image-move", "NotFound", image=one["id"], pool="nowhere", wait=True)
    unchanged(move(s, one["id"], "default")["result"])
    dry = s.client.cmd("image-move", image=one["id"], pool="other", dry_run=True)
    check(dry["ok"], dry)
    record = move(s, one["id"], "other")
    equal([at["phase"] for at in record["timeline"]],
          ["Pending", "Preparing", "Copying", "Verifying", "Committing", "Moved"])
    result = record["result"]
    equal((result["bytes"], result["copied-bytes"], result["kept-bytes"]),
          (one["bytes"], one["bytes"], 0))
    there = image(s)
    equal((there["pool"], there["state"], there["path"]),
          ("other", "complete", os.path.join(s.daemon.pools["other"], "vm", one["id"])))
    check(there["verified"], "its verification moves with it")
    equal(os.listdir(s.daemon.pool), [".torpor-pool"])
    vm.expect("hibernated/save")
    wait_condition(s, "True")
    s.daemon.restart(kill=True)
    equal(image(s)["pool"], "other")
    verify(s, one["id"])
    vm.restore(keep=True)
    vm.went_on(before)
    # A kept one while the VM runs.
    move(s, one["id"], "default")
    kept = image(s)
    equal((kept["pool"], kept["state"], kept["kind"]), ("default", "consumed", "kept"))
    vm.tick()
    s.daemon.restart()
    equal(image(s)["state"], "consumed", "after a restart")
    s.client.cmd("image-delete", image=one["id"])


def _damaged_and_moved(s, pool):
    """The copy that a move leaves which finds damage in the middle of the image, put right after it."""
    one = image(s)
    with Bytes(os.path.join(one["path"], "memory.zst"), one["bytes"] // 2):
        error = s.client.err("image-move", "Corrupt", image=one["id"], pool=pool, wait=True, seconds=60)
        matches(error.desc, r"frame \d+ at offset")
        equal(image(s)["pool"], one["pool"])
    copy, = copies(s)
    equal((copy["id"], copy["pool"]), (one["id"], pool))
    check(0 < copy["bytes"] < one["bytes"], copy)
    return copy


def test_move_of_a_damaged_image(s):
    second_pool(s)
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    one = image(s)
    _damaged_and_moved(s, "other")
    # It can be removed alone, the state of the VM cannot.
    matches(s.torpor("prune", "--dry-run").stdout,
            rf"^{one['id']}: would be deleted \(never finished\), .* in pool other\nwould free .* 1 image\n$")
    s.torpor("image", "rm", one["id"], "--pool", "default", status=1)
    s.torpor("image", "rm", one["id"], "--pool", "other")
    equal([at["pool"] for at in images(s)], ["default"])
    _damaged_and_moved(s, "other")
    result = move(s, one["id"], "other")["result"]
    check(result["kept-bytes"] > one["bytes"] // 3, result)
    equal(copies(s), [])
    # A copy goes with its image: here by the restore's deletion, by undefine.
    copy = _damaged_and_moved(s, "default")
    vm.restore()
    vm.went_on(before)
    poll(lambda: not images(s), 20, "the end of image and copy")
    check(not os.path.exists(copy["path"]), f"{copy['path']} is there")
    vm.hibernate()
    copy = _damaged_and_moved(s, "other")
    s.client.cmd("vm-undefine", name="vm", images="delete")
    poll(lambda: not images(s), 20, "the end of image and copy, VM undefined")
    check(not os.path.exists(copy["path"]), f"{copy['path']} is there")


def _cut(s, vm, id_, fault, end):
    """A move that is ended in its middle by `end`; the copy that it leaves."""
    before = [one["bytes"] for one in copies(s)]
    mover_fault(s, vm, fault)
    operation = s.client.cmd("image-move", image=id_, pool="other")["operation"]
    end(operation)
    mover_fault(s, vm, None)
    poll(lambda: not mover_pids(), 20, "the end of the mover")
    poll(lambda: [one["bytes"] for one in copies(s)] > before, 20, f"more of the copy than {before}")
    copy, = copies(s)
    equal((copy["pool"], copy["restorable"]), ("other", False))
    matches(copy["why-not"], "being moved from pool default: [0-9]+ of [0-9]+ bytes")
    equal((image(s)["pool"], image(s)["state"]), ("default", "complete"))
    vm.expect("hibernated/save")
    return copy


@tag("faults")
def test_move_goes_on_where_it_was_cut(s):
    """Cancelled, its mover killed, the daemon killed: each time it goes on, and copies the rest."""
    second_pool(s)
    vm = s.boot()
    before = vm.tick()
    vm.fill(8)
    vm.hibernate()
    one = image(s)
    quarter = one["bytes"] // 4

    def copied(operation, wanted):
        wait_phase(s, operation, "Copying")
        poll(lambda: (s.client.cmd("query-operation", id=operation)["progress"]["done-bytes"] or 0)
             >= wanted - MIB, 30, f"{wanted} bytes of the copy")

    def cancelled(operation):
        copied(operation, quarter)
        s.client.cmd("operation-cancel", id=operation)
        equal(ended(s, operation)["status"], "cancelled")

    def killed(operation):
        failed(s, operation, "IOError", "ended too early")

    def daemon_killed(operation):
        copied(operation, 3 * quarter)
        s.daemon.restart(kill=True)
        settled(s)

    first = _cut(s, vm, one["id"], f"stall-at-bytes:{quarter}", cancelled)
    second = _cut(s, vm, one["id"], f"die-at-bytes:{2 * quarter}", killed)
    third = _cut(s, vm, one["id"], f"stall-at-bytes:{3 * quarter}", daemon_killed)
    check(first["bytes"] < second["bytes"] < third["bytes"], (first, second, third))
    s.client.err("image-delete", "InvalidState", image=one["id"])
    s.daemon.restart()
    equal([copy["bytes"] for copy in copies(s)], [third["bytes"]], "copies after a start")
    result = move(s, one["id"], "other")["result"]
    check(result["kept-bytes"] > 3 * quarter - MIB, result)
    # Frames that were there, the others, and header, index and footer, which are written anew.
    equal(result["kept-bytes"] + result["copied-bytes"], one["bytes"], f"bytes of {result}")
    equal(copies(s), [])
    equal(image(s)["pool"], "other")
    verify(s, one["id"])
    vm.restore()
    vm.went_on(before)


@slow
@tag("faults")
def test_copies_are_thrown_away(s):
    second_pool(s)
    s.daemon.pools["third"] = s.path("third")
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    one = image(s)
    for first in (True, False):
        mover_fault(s, vm, "die-at-bytes:5000000")
        s.client.err("image-move", "IOError", image=one["id"], pool="other", wait=True)
        mover_fault(s, vm, None)
        poll(lambda: copies(s), 20, "a copy")
        if first:
            s.client.cmd("image-delete", image=one["id"], pool="other")
            equal(copies(s), [])
    move(s, one["id"], "third")
    poll(lambda: not copies(s), 20, "the end of the copy elsewhere")
    equal(os.listdir(s.daemon.pools["other"]), [".torpor-pool"])
    vm.restore()
    vm.went_on(before)
    vm.hibernate()
    mover_fault(s, vm, "die-at-bytes:5000000")
    s.client.err("image-move", "IOError", image=image(s)["id"], pool="other", wait=True)
    mover_fault(s, vm, None)
    poll(lambda: copies(s), 20, "a copy")
    copy, = copies(s)
    # Discarded while the copy's pool is away: it goes when that returns.
    s.daemon.stop()
    other = s.daemon.pools["other"]
    os.rename(other, other + ".away")
    with open(other, "w", encoding="ascii"):
        pass
    s.daemon.start()
    s.client.cmd("vm-discard", name="vm")
    os.unlink(other)
    os.rename(other + ".away", other)
    poll(lambda: not os.path.exists(copy["path"]), 30, "the end of the copy of what was discarded")
    poll(lambda: not images(s), 20, "the end of all images")


STEPS = ("preflight", "create-copy", "copy", "write-manifest", "commit", "retire-source", "offer-copy",
         "remove-source")


def _killed_at(s, vm, steps):
    """The daemon dies at each step, to and fro; the image is in one of the pools, and only there."""
    id_ = image(s)["id"]
    for step in steps:
        for when in ("die-after-enter", "die-after-effect"):
            here = image(s)["pool"]
            there = "default" if here == "other" else "other"
            armed(s, f"image-move/{step}:{when}")
            send_and_die(s, "image-move", image=id_, pool=there)
            revive(s)
            settled(s)
            poll(lambda: len([one for one in images(s) if one["state"] == "complete"]) == 1, 20,
                 f"one image after {step}:{when}: {images(s)}")
            vm.expect("hibernated/save")
            committed = STEPS.index(step) > STEPS.index("commit")
            equal(image(s)["pool"], there if committed else here, f"{step}:{when}")
            equal(vm.info()["image"]["pool"], image(s)["pool"], f"{step}:{when}")
    armed(s, None)


@tag("faults")
def test_daemon_killed_while_it_commits(s):
    second_pool(s)
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    _killed_at(s, vm, ("commit", "retire-source"))
    sleeps(s, vm)
    vm.restore()
    vm.went_on(before)


@slow
@tag("faults")
def test_daemon_killed_at_each_step(s):
    second_pool(s)
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    _killed_at(s, vm, STEPS)
    vm.restore()
    vm.went_on(before)


@tag("faults")
def test_move_without_room(s):
    second_pool(s, s.tmpfs("small", "4m"))
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    one = image(s)
    error = s.client.err("image-move", "InsufficientSpace", image=one["id"], pool="other", wait=True)
    check(error.data["required"] > error.data["available"], error.data)
    equal(copies(s), [])
    # The copy's medium fails in its middle.
    s.daemon.stop()
    second_pool(s)
    s.daemon.pools["other"] = s.path("roomy")
    s.daemon.start()
    mover_fault(s, vm, f"io-error-at-bytes:{one['bytes'] // 2}")
    error = s.client.err("image-move", "IOError", image=one["id"], pool="other", wait=True)
    matches(error.desc, "write of the copy at offset")
    mover_fault(s, vm, None)
    equal((image(s)["pool"], image(s)["state"]), ("default", "complete"))
    vm.restore()
    vm.went_on(before)


@tag("faults")
def test_source_pool_goes_while_moving(s):
    """Committed, and the pool it came from is away: what returns there is not the image."""
    second_pool(s)
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    id_ = image(s)["id"]
    armed(s, "image-move/retire-source:die-after-enter")
    send_and_die(s, "image-move", image=id_, pool="other")
    os.rename(s.daemon.pool, s.daemon.pool + ".away")
    with open(s.daemon.pool, "w", encoding="ascii"):
        pass
    revive(s)
    settled(s)
    equal((image(s)["pool"], image(s)["state"]), ("other", "complete"))
    record, = s.client.cmd("query-operations", kind="image-move")
    matches(" ".join(record["warnings"]), "removed when it can be reached")
    os.unlink(s.daemon.pool)
    os.rename(s.daemon.pool + ".away", s.daemon.pool)
    s.daemon.restart()
    poll(lambda: not os.path.exists(os.path.join(s.daemon.pool, "vm", id_)), 20,
         "the end of what was left behind")
    equal([(one["pool"], one["state"]) for one in images(s)], [("other", "complete")])
    vm.restore()
    vm.went_on(before)


# --- states, retention ---


def test_kept_images_are_retained_by_number(s):
    vm = s.vm()
    vm.spec["storage"] = {"retain": {"count": 2}}
    vm.spec["hibernate"] = {"keep": True}
    vm.boot()
    before = vm.tick()
    ids = []
    for _ in range(3):
        vm.hibernate()
        ids.append([one["id"] for one in images(s, state="complete")][0])
        vm.restore()
    data = s.client.event("IMAGE", lambda event: event["state"] == "deleted")["data"]
    equal((data["image"], data["reason"]), (ids[0], "retain.count"))
    poll(lambda: [one["id"] for one in images(s)] == sorted(ids[1:]), 20, "the newest two")
    vm.went_on(before)
    # Hibernated: its own image is never counted; age takes what is older.
    s.client.cmd("vm-set", name="vm", merge={"storage": {"retain": {"count": None, "age": 1}}})
    time.sleep(1.1)
    vm.hibernate()
    poll(lambda: [one["state"] for one in images(s)] == ["complete"], 20, "its own image alone")
    s.client.err("vm-set", "GenericError", name="vm", merge={"storage": {"retain": {"count": -1}}})
    s.client.err("image-delete", "InvalidState", image=image(s)["id"])


def test_unavailable_and_partial(s):
    second_pool(s)
    vm = s.boot()
    vm.hibernate(pool="other")
    one = image(s)
    s.daemon.stop()
    os.rename(s.daemon.pools["other"], s.daemon.pools["other"] + ".away")
    with open(s.daemon.pools["other"], "w", encoding="ascii"):
        pass
    s.daemon.start()
    away, = images(s)
    equal((away["id"], away["state"], away["restorable"]), (one["id"], "unavailable", False))
    matches(away["why-not"], "its pool other is missing")
    equal(wait_condition(s, "False")["reason"], "PoolMissing")
    os.unlink(s.daemon.pools["other"])
    os.rename(s.daemon.pools["other"] + ".away", s.daemon.pools["other"])
    s.daemon.restart()
    equal(image(s)["state"], "complete")
    wait_condition(s, "True")
    s.qemu_io(vm, "write -P 0x5a 400M 64k")
    s.daemon.restart()
    equal(wait_condition(s, "False")["reason"], "StaleState")
    # While it is written it is partial.
    other = s.boot("second")
    operation = s.client.cmd("vm-hibernate", name="second")["operation"]
    poll(lambda: images(s, "second"), 30, "the image")
    check(images(s, "second")[0]["state"] in ("partial", "complete"), images(s, "second"))
    ended(s, operation)
    other.expect("hibernated/save")


def test_restore_trusts_no_byte(s):
    """Header, frames, index, footer, manifest: damage is named, the guest does not run."""
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    saved = vm.last_tick()
    one = image(s)
    path, manifest = vm.image_file(), os.path.join(one["path"], "manifest.json")
    with open(path, "rb") as file:
        file.seek(-128, os.SEEK_END)
        footer = file.read()
    index = int.from_bytes(footer[32:40], "little")
    places = [(path, 30, "memory.zst|header"), (path, 5000, "frame 0"),
              (path, index // 3, "frame [0-9]+"), (path, index // 2, "frame [0-9]+"),
              (path, index - 10, "frame [0-9]+"),
              (path, index + 60, "index"), (path, one["bytes"] - 100, "footer"),
              (manifest, 1, "manifest")]
    for file, offset, where in places:
        with Bytes(file, offset):
            error = s.client.err("vm-restore", "Corrupt", name="vm", wait=True, seconds=90)
            matches(error.desc, where, f"error of byte {offset}")
            check(error.data.get("where"), error.data)
            vm.expect("hibernated/save")
        # A damage that the load met is known until a verification finds none.
        if image(s)["state"] == "corrupt":
            verify(s, one["id"])
    vm.silent()
    equal(vm.last_tick(), saved, "the guest's last tick")
    vm.restore()
    vm.went_on(before)
