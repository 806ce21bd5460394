# SPDX-License-Identifier: LGPL-2.1-or-later
"""Images: verified, moved between pools, kept and thrown away; what damage does to them."""

import json
import os
import signal
import time

from lib import check, equal, matches, poll, slow, tag, unchanged
from lib.faults import (armed, ended, failed, mover_fault, mover_pids, revive, send_and_die, settled, sleeps,
                        wait_phase)

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
    found = [one for one in s.client.cmd("query-vm", name=name)["conditions"] if one["type"] == type_]
    return found[0]


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
    equal((result["image"], result["bytes"], result["raw-bytes"]), (one["id"], one["bytes"], one["raw-bytes"]))
    check(result["frames"] > 100 and result["pages"] > 10000 and result["seconds"] > 0, result)
    good = image(s)
    check(good["verified"] >= record["started"], good)

    with Bytes(vm.image_file(), one["bytes"] // 2):
        error = s.client.err("image-verify", "Corrupt", image=one["id"], wait=True, seconds=120)
        equal((error.data["image"], error.data["damaged"]), (one["id"], 1))
        damage, = error.data["damage"]
        check(damage["frame"] > 0 and damage["offset"] < one["bytes"] // 2 < damage["offset"] + damage["length"],
              damage)
        s.client.event("IMAGE", lambda data: data["state"] == "corrupt")
        bad = image(s)
        equal((bad["state"], bad["restorable"], bad["verified"]), ("corrupt", False, None))
        matches(bad["why-not"], "damaged: ")
        equal(wait_condition(s, "False")["reason"], "Corrupt")
        s.client.event("CONDITION", lambda data: data["type"] == "Restorable" and data["status"] == "False")
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
    poll(lambda: len([i for i in ids[1:] if s.client.cmd("query-operation", id=i)["status"] == "failed"]) == 1,
         20, "the failure of the one whose mover died")
    left = [i for i in ids[1:] if s.client.cmd("query-operation", id=i)["status"] == "running"]
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
    check(s.client.cmd("image-move", image=one["id"], pool="other", **{"dry-run": True})["ok"], "dry run")
    record = move(s, one["id"], "other")
    equal([at["phase"] for at in record["timeline"]],
          ["Pending", "Preparing", "Copying", "Verifying", "Committing", "Moved"])
    result = record["result"]
    equal((result["bytes"], result["copied-bytes"], result["kept-bytes"]), (one["bytes"], one["bytes"], 0))
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


def test_move_of_a_damaged_image(s):
    second_pool(s)
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    one = image(s)
    with Bytes(vm.image_file(), one["bytes"] // 2):
        error = s.client.err("image-move", "Corrupt", image=one["id"], pool="other", wait=True, seconds=60)
        matches(error.desc, r"frame \d+ at offset")
        equal(image(s)["pool"], "default")
    copy, = copies(s)
    equal(copy["pool"], "other")
    check(0 < copy["bytes"] < one["bytes"], copy)
    result = move(s, one["id"], "other")["result"]
    check(result["kept-bytes"] > one["bytes"] // 3, result)
    equal(copies(s), [])
    vm.restore()
    vm.went_on(before)
