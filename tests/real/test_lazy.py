# SPDX-License-Identifier: LGPL-2.1-or-later
"""Lazy restore through torpord: the guest runs while its memory still comes from the image."""

import os
import re
import shutil
import signal
import subprocess

from lib.base import check, equal, matches, poll
from lib.faults import armed, revive, send_and_die, settled
from lib.scenario import slow, tag


def prefetch(vm):
    return vm.info()["prefetch"]


def whole(vm, seconds=60):
    poll(lambda: prefetch(vm) is None, seconds, f"all memory of {vm.name} to be in, {prefetch(vm)}")


@tag("version")
def test_runs_before_its_memory_is_there(s):
    vm = s.boot(memory="512M")
    vm.fill(64, "mixed")
    before = vm.tick()
    vm.hibernate()
    record = vm.restore(mode="lazy", bandwidth=16 << 20)
    equal((record["status"], record["result"]["mode"], record["result"]["state"]), ("succeeded", "lazy", "running"))
    check("Prefetching" in [entry["phase"] for entry in record["timeline"]], record["timeline"])
    check("whole" not in record["result"], record)
    now = prefetch(vm)
    check(now and 0 < now["pages-left"] < now["pages"], now)
    vm.expect("running/ok")
    vm.went_on(before)
    whole(vm)
    vm.verify()
    record = s.client.cmd("query-operation", id=record["id"])
    check(record["result"]["whole"] > record["result"]["running"] > 0, record["result"])
    poll(lambda: vm.images() == [], 20)


def lazily(vm, **arguments):
    """Saved, and restored so slowly that the memory is not all in for a while."""
    arguments.setdefault("bandwidth", 4 << 20)
    vm.hibernate()
    return vm.restore(mode="lazy", **arguments)


def server_pid(s, vm):
    """Of its page server: the mover whose listening socket is in the run directory."""
    path = os.path.join(vm.run_dir, "pages.sock")
    done = subprocess.run(["ss", "-xlpH", "src", path], check=True, capture_output=True, text=True)
    found = re.search(r"pid=(\d+)", done.stdout)
    return int(found.group(1)) if found else None


def kill_server(s, vm):
    os.kill(server_pid(s, vm), signal.SIGKILL)


@tag("version")
def test_page_server_is_killed(s):
    """Three times in a row; once while the daemon is dead, once just before it dies."""
    vm = s.boot(memory="512M")
    vm.fill(64, "mixed")
    before = vm.tick()
    lazily(vm, keep=True)
    for _ in range(3):
        kill_server(s, vm)
        vm.went_on(before)
        before = vm.tick()
        vm.wait_state("running/ok")
    equal(prefetch(vm)["restarts"], 3)
    s.daemon.restart(kill=True)
    vm.wait_state("running/ok")
    before = vm.went_on(before)
    pid = server_pid(s, vm)
    s.daemon.restart(kill=False)
    equal(server_pid(s, vm), pid)
    vm.wait_state("running/ok")
    s.client.cmd("vm-hibernate", name="vm", wait=True)      # all is read first
    vm.restore(mode="eager")
    vm.verify()
    vm.went_on(before)


def test_verbs_act_at_once_meanwhile(s):
    vm = s.boot(memory="512M")
    vm.fill(32, "mixed")
    lazily(vm, keep=True, bandwidth=256 << 10)
    vm.pause()
    vm.expect("paused/user")
    vm.silent()
    vm.resume()
    vm.tick()
    image = prefetch(vm)["image"]
    s.client.err("image-delete", "Busy", image=image)
    s.client.cmd("vm-reset", name="vm")
    vm.ready(vm.mark())
    check(prefetch(vm), "all is in already")
    vm.powerdown()
    vm.expect("shutoff/powerdown")
    equal(prefetch(vm), None)
    equal([entry["state"] for entry in vm.images()], ["consumed"])


def test_qemu_dies_meanwhile(s):
    """After its guest has run: as after a power cut. Before: the image is offered again."""
    vm = s.boot(memory="512M")
    vm.fill(32, "mixed")
    lazily(vm)
    pid = server_pid(s, vm)
    os.kill(vm.info()["pid"], signal.SIGKILL)
    vm.wait_state("crashed/signal")
    equal(prefetch(vm), None)
    poll(lambda: not os.path.exists(f"/proc/{pid}"), 10, "the end of the page server")
    image = vm.images()[0]
    equal((image["state"], image["restorable"]), ("consumed", False))
    vm.restore(image=image["id"], mode="lazy", allow=["reused-image", "stale-disks"], paused=True, bandwidth=4 << 20)
    vm.expect("paused/restored-paused")
    os.kill(vm.info()["pid"], signal.SIGKILL)
    vm.wait_state("hibernated/save")
    poll(lambda: vm.images()[0]["state"] == "complete", 20)
    vm.restore(mode="lazy", paused=True, bandwidth=64 << 20)
    vm.resume()
    vm.tick()
    whole(vm)
    vm.verify()
    poll(lambda: vm.images() == [], 20)


def test_until_whole(s):
    vm = s.boot(memory="512M")
    vm.fill(32, "mixed")
    vm.hibernate()
    done = vm.restore(mode="lazy", until="whole", bandwidth=64 << 20)
    equal((done["status"], done["phase"], done["timeline"][-1]["phase"]), ("succeeded", "Restored", "Restored"))
    check(done["result"]["whole"] >= done["result"]["running"], done)
    check("working-set" not in done["result"], done)
    equal(prefetch(vm), None)
    # The waiter's record is shown as running meanwhile, and does not hold the VM.
    vm.hibernate()
    # What this guest touched first goes with its image, and is there first next time.
    matches(s.torpor("image", "info", vm.image_file()).stdout, r"working   set of [1-9]\d* pages in \d+ ranges")
    op = s.client.cmd("vm-restore", name="vm", mode="lazy", until="whole", bandwidth=8 << 20)["operation"]
    vm.wait_state("running/ok", 60)
    record = s.client.cmd("query-operation", id=op)
    equal((record["status"], record["phase"]), ("running", "Prefetching"))
    equal(vm.info()["operation"], None)
    s.client.err("operation-cancel", "InvalidState", id=op)
    s.daemon.restart(kill=True)
    vm.wait_state("running/ok")
    equal(s.client.cmd("query-operation", id=op)["status"], "running")
    done = s.client.cmd("operation-wait", id=op)
    equal(done["phase"], "Restored")
    check(0 < done["result"]["working-set"] <= done["result"]["whole"], done)
    vm.verify()


@tag("faults")
def test_daemon_dies_in_each_step(s):
    vm = s.boot(memory="256M")
    vm.fill(16, "mixed")
    before = vm.tick()
    vm.hibernate()
    for fault in ("page-server:die-after-effect", "serve:die-after-effect", "consume:die-after-effect",
                  "ran:die-after-effect", "hand-over:die-after-enter", "hand-over:die-after-effect",
                  "run:die-after-effect"):
        armed(s, f"restore/{fault}")
        vm.expect("hibernated/save")
        send_and_die(s, "vm-restore", name="vm", mode="lazy", bandwidth=4 << 20, keep=True)
        revive(s)
        settled(s)
        if vm.state() == "hibernated/save":
            equal(prefetch(vm), None)
            vm.restore(mode="lazy", bandwidth=4 << 20, keep=True)
        vm.wait_state("running/ok")
        before = vm.went_on(before)
        vm.hibernate()
    vm.restore()
    vm.verify()


@slow
def test_damage_in_what_was_not_sent(s):
    """Named, never run on; what was put right is served, and the guest goes on by itself."""
    vm = s.boot(memory="512M")
    vm.fill(64, "random")
    vm.hibernate(keep=True)
    image = vm.image_file()
    good = s.path("good")
    shutil.copyfile(image, good)
    offset = os.path.getsize(image) * 3 // 4
    with open(image, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0xff]))
    vm.restore(mode="lazy", keep=True)
    vm.wait_state("restoring/postcopy-paused", 60)
    told = prefetch(vm)
    matches(told["message"], r"is damaged: .*frame \d+.*pc\.ram.*image cat --salvage")
    check(told["damage"][0]["pages"] > 0 and told["damage"][0]["block"] == "pc.ram", told)
    before = vm.last_tick()
    vm.silent(1)
    with open(good, "rb") as source, open(image, "r+b") as file:
        source.seek(offset)
        file.seek(offset)
        file.write(source.read(1))
    vm.wait_state("running/ok", 90)
    vm.went_on(before)
    whole(vm)
    vm.verify()


@slow
def test_quit_while_the_image_is_damaged(s):
    """QEMU's main loop may wait for a page that never comes: it is ended all the same."""
    vm = s.boot(memory="512M")
    vm.fill(64, "random")
    vm.hibernate(keep=True)
    image = vm.image_file()
    with open(image, "r+b") as file:
        file.seek(os.path.getsize(image) // 2)
        file.write(bytes(4096))
    vm.restore(mode="lazy", keep=True)
    vm.wait_state("restoring/postcopy-paused", 60)
    s.daemon.restart(kill=True)
    vm.wait_state("restoring/postcopy-paused", 60)
    vm.quit()
    vm.wait_state("shutoff/quit")
    equal(prefetch(vm), None)


def test_what_cannot_be_lazy_is_eager(s):
    """Too small for "auto"; a QEMU that may not handle its guest's page faults."""
    vm = s.boot(memory="256M", qemu=s.qemu)
    before = vm.tick()
    vm.hibernate()
    equal(vm.restore()["result"]["mode"], "eager")
    before = vm.went_on(before)
    vm.hibernate()
    vm.spec["launch"]["wrapper"] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    vm.define()
    os.chmod(s.dir, 0o755)
    dry = s.client.cmd("vm-restore", name="vm", mode="lazy", **{"dry-run": True})
    check(dry["ok"], dry)


@slow
def test_several_at_once(s):
    vms = [s.boot(name, memory="256M") for name in ("one", "two", "three")]
    for vm in vms:
        vm.fill(32, "mixed")
        vm.hibernate()
    ops = [s.client.cmd("vm-restore", name=vm.name, mode="lazy", until="whole")["operation"] for vm in vms]
    for op in ops:
        equal(s.client.cmd("operation-wait", id=op)["status"], "succeeded")
    for vm in vms:
        vm.verify()


@slow
@tag("version")
def test_page_server_is_killed_ten_times(s):
    vm = s.boot(memory="512M")
    vm.fill(64, "mixed")
    before = vm.tick()
    lazily(vm)
    for _ in range(10):
        kill_server(s, vm)
        before = vm.went_on(before)
        vm.wait_state("running/ok")
    equal(prefetch(vm)["restarts"], 10)
    vm.hibernate()
    vm.restore(mode="eager")
    vm.verify()
