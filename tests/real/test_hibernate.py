# SPDX-License-Identifier: LGPL-2.1-or-later
"""vm-hibernate: what is saved, what refuses it, what turns it back."""

import json
import os
import re
import signal
import subprocess
import time

from lib import Client, Failure, check, deadline, equal, matches, poll, slow, unchanged, version
from lib.base import qemu_program


def image_files(s):
    """All files of the pool."""
    found = []
    for folder, _, names in os.walk(s.daemon.pool):
        found += [os.path.join(folder, name) for name in names if name != ".torpor-pool"]
    return found


@version
def test_record_and_image(s):
    vm = s.boot()
    vm.ask("seq start 5")
    vm.fill(24, "mixed")
    events = s.connect()
    record = vm.hibernate()
    equal((record["kind"], record["status"], record["phase"]),
          ("hibernate", "succeeded", "Hibernated"))
    check(record["committed"] and record["rollback"] == "none", record)
    phases = [entry["phase"] for entry in record["timeline"]]
    wanted = ["Pending", "Preparing", "Pausing", "Saving", "Syncing", "Committing", "Terminating",
              "Hibernated"]
    equal(phases, wanted, "phases")
    events.event("VM_STATE", lambda data: data["state"] == "hibernated")
    info = vm.info()
    equal((info["state"], info["reason"], info["running"], info["pid"]),
          ("hibernated", "save", False, None))
    done = info["hibernation"]
    equal(done["method"], "save")
    check(0 < done["bytes"] < done["raw-bytes"], done)
    check(0 < done["pause"] < 60, done)
    image, = vm.images()
    equal((image["kind"], image["state"], image["restorable"], image["uid"]),
          ("hibernation", "complete", True, info["uid"]))
    equal(image["id"], done["image"])
    matches(image["id"], r"^vm-\d{8}T\d{6}Z-[0-9a-fA-F]{6}$", "image id")
    check(subprocess.run(["zstd", "-dcq", vm.image_file()], stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL, check=False).returncode == 0,
          "zstd does not read the image")
    unchanged(vm.hibernate())
    vm.restore()
    vm.ask("verify")
    matches(vm.ask("seq show"), "gaps=0")


@version
def connected(path):
    """A client of a monitor that is about to listen: bound, it is there, but refuses."""
    def attempt():
        try:
            return Client(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return None

    return poll(attempt, 20, f"a monitor at {path}")


def test_stock_qemu_loads_the_stream(s):
    vm = s.boot(disk=False, agent=False)
    before = vm.tick()
    vm.hibernate()
    args = json.loads(json.dumps(vm.spec["launch"]["args"]).replace("{run-dir}", s.dir))
    stream = s.path("stream")
    with open(stream, "wb") as file:
        subprocess.run(["zstd", "-dcq", vm.image_file()], stdout=file, check=True)
    args += ["-S", "-incoming", f"exec:cat {stream}", "-qmp", f"unix:{s.dir}/q,server=on,wait=off"]
    qemu = subprocess.Popen([vm.spec["launch"]["binary"], *args], stdin=subprocess.DEVNULL)
    s.at_end(lambda: (qemu.kill(), qemu.wait()))
    with connected(s.path("q")) as monitor:
        poll(lambda: monitor.cmd("query-status")["status"] == "paused", 20, "the end of the load")
        monitor.cmd("cont")
        vm.went_on(before)
    qemu.kill()
    qemu.wait()


def test_threads(s):
    vm = s.boot()
    before = vm.tick()
    s.client.err("vm-hibernate", "GenericError", name="vm", threads=-1, wait=True)
    for threads in (0, 1, 3):
        vm.hibernate(threads=threads)
        vm.restore()
        before = vm.went_on(before)


@version
@deadline(240)
def test_five_rounds(s):
    vm = s.boot()
    sum_ = vm.fill(24, "mixed")
    vm.ask("seq start 5")
    tick = vm.tick()
    for _ in range(5):
        vm.hibernate()
        vm.expect("hibernated/save")
        vm.restore()
        vm.expect("running/ok")
        tick = vm.went_on(tick)
        vm.verify(sum_)
        matches(vm.ask("seq show"), "gaps=0 errno=0")
    matches(vm.ask("seq stop"), "gaps=0 errno=0")
    vm.ask("write note after five rounds")
    equal(vm.ask("read note"), "after five rounds")
    vm.powerdown()
    done = subprocess.run([qemu_program(vm.version, "qemu-img"), "check", "-q", vm.disk],
                          capture_output=True, text=True, check=False)
    equal(done.returncode, 0, f"qemu-img check: {done.stdout}{done.stderr}")


@slow
@version
@deadline(1500)
def test_hundred_rounds(s):
    vm = s.boot()
    sum_ = vm.fill(16, "mixed")
    vm.ask("seq start 20")
    tick = vm.tick()
    descriptors = None
    for number in range(100):
        vm.hibernate()
        vm.restore()
        tick = vm.went_on(tick)
        if number % 10 == 9:
            vm.verify(sum_)
            matches(vm.ask("seq show"), "gaps=0 errno=0")
            now = len(s.daemon.descriptors())
            equal(now, descriptors or now, "descriptors of torpord")
            descriptors = now
    check(s.daemon.rss() < (16 << 20) or s.options.san, f"torpord uses {s.daemon.rss()} bytes")


@version
def test_paused_vm(s):
    vm = s.boot()
    before = vm.tick()
    vm.pause()
    vm.hibernate()
    vm.expect("hibernated/save")
    vm.restore()
    vm.expect("paused")
    vm.silent()
    vm.resume()
    vm.went_on(before)
    vm.hibernate()
    vm.restore()
    vm.went_on(before)


def test_dry_run_touches_nothing(s):
    vm = s.boot()
    before = vm.tick()
    plan = s.client.cmd("vm-hibernate", name="vm", dry_run=True)
    equal((plan["ok"], plan["blockers"]), (True, []))
    check("Saving" in plan["plan"] and "Committing" in plan["plan"], plan["plan"])
    check(plan["estimate"]["bytes"] > 0, plan["estimate"])
    vm.expect("running/ok")
    equal(image_files(s), [], "files in the pool")
    now = vm.went_on(before, 20)
    plan = s.client.cmd("vm-hibernate", name="vm", dry_run=True, pool="nowhere")
    equal(plan["ok"], False)
    equal(plan["blockers"][0]["class"], "NotFound")
    vm.went_on(now, 20)


def slow_save(vm):
    """Arguments that make a save of a filled guest last for some seconds."""
    vm.fill(64, "mixed")
    return {"level": 12, "threads": 1}


@version
def test_cancel_during_saving(s):
    vm = s.boot()
    arguments = slow_save(vm)
    before = vm.tick()
    events = s.connect()
    operation = s.client.cmd("vm-hibernate", name="vm", **arguments)["operation"]
    events.event("OPERATION", lambda data: data["id"] == operation and data["phase"] == "Saving")
    vm.expect("hibernating")
    busy = s.client.err("vm-pause", "Busy", name="vm")
    equal((busy.data["operation"], busy.data["kind"]), (operation, "hibernate"))
    mark, began = vm.mark(), time.monotonic()
    s.client.cmd("operation-cancel", id=operation)
    vm.line(r"^TICK n=", 10, mark)
    took = time.monotonic() - began
    check(took < (4 if s.options.san else 2), f"the guest ran again after {took:.1f} s")
    record = s.client.cmd("operation-wait", id=operation)
    equal((record["status"], record["rollback"], record["error"]["class"]),
          ("cancelled", "done", "Cancelled"))
    vm.expect("running/ok")
    vm.went_on(before)
    vm.ask("verify")
    poll(lambda: not image_files(s), 5, f"an empty pool ({image_files(s)})")
    s.client.cmd("vm-hibernate", name="vm", wait=True)
    vm.restore()
    vm.went_on(before)
    vm.ask("verify")


def test_timeout_during_saving(s):
    vm = s.boot()
    arguments = slow_save(vm)
    before = vm.tick()
    error = s.client.err("vm-hibernate", "Timeout", name="vm", wait=True, timeout=2, **arguments)
    equal((error.data["record"]["status"], error.data["record"]["rollback"]), ("failed", "done"))
    vm.expect("running/ok")
    vm.went_on(before)
    vm.ask("verify")
    poll(lambda: not image_files(s), 5, "an empty pool")


def test_busy_modes(s):
    vm = s.boot()
    arguments = {"level": 6, "threads": 1}      # lasts for some commands, and is waited for twice
    first = s.client.cmd("vm-hibernate", name="vm", **arguments)["operation"]
    error = s.client.err("vm-powerdown", "Busy", name="vm", wait=True)
    equal(error.data["operation"], first)
    check("phase" in error.data, error.data)
    queued = s.client.cmd("vm-restore", name="vm", busy="queue")["operation"]
    equal(s.client.cmd("query-operation", id=queued)["phase"], "Pending")
    check(s.client.cmd("query-vm", name="vm")["operation"]["id"] == first, "operation")
    record = s.client.cmd("operation-wait", id=queued, seconds=90)
    equal(record["status"], "succeeded", record.get("error"))
    equal(s.client.cmd("query-operation", id=first)["status"], "succeeded")
    vm.tick()
    vm.expect("running/ok")
    # The second one takes the place of the first.
    first = s.client.cmd("vm-hibernate", name="vm", **arguments)["operation"]
    second = s.client.cmd("vm-hibernate", name="vm", busy="cancel")["operation"]
    equal(s.client.cmd("operation-wait", id=second, seconds=90)["status"], "succeeded")
    equal(s.client.cmd("query-operation", id=first)["status"], "cancelled")
    vm.expect("hibernated/save")
    equal(len(vm.images()), 1, "images")


def test_operation_ids(s):
    vm = s.boot()
    first = s.client.cmd("vm-hibernate", name="vm", operation_id="mine")
    equal(first["operation"], "mine")
    equal(s.client.cmd("vm-hibernate", name="vm", operation_id="mine")["operation"], "mine")
    s.client.err("vm-hibernate", "Exists", name="vm", operation_id="mine", level=3)
    record = s.client.cmd("operation-wait", id="mine", seconds=60)
    equal(record["status"], "succeeded")
    equal(s.client.cmd("vm-hibernate", name="vm", operation_id="mine", wait=True)["id"], "mine")
    error = s.client.err("operation-cancel", "InvalidState", id="mine")
    check("phase" in error.data, error.data)
    s.client.err("query-operation", "NotFound", id="op-4711")
    found = s.client.cmd("query-operations", vm="vm")
    equal(found[0]["id"], "mine", "the newest operation")
    equal(s.client.cmd("query-operations", vm="vm", kind="start", status="succeeded")[0]["kind"],
          "start")
    equal(len(s.client.cmd("query-operations", limit=1)), 1)
    s.daemon.restart(kill=True)
    equal(s.client.cmd("query-operation", id="mine")["status"], "succeeded", "after a restart")
    vm.expect("hibernated/save")
    s.client.err("vm-restore", "Exists", name="vm", operation_id="mine")
    vm.restore()


def test_quit_during_saving(s):
    vm = s.boot()
    arguments = slow_save(vm)
    events = s.connect()
    operation = s.client.cmd("vm-hibernate", name="vm", **arguments)["operation"]
    events.event("OPERATION", lambda data: data["id"] == operation and data["phase"] == "Saving")
    s.client.cmd("vm-quit", name="vm", seconds=20)
    vm.expect("shutoff/quit")
    equal(s.client.cmd("query-operation", id=operation)["status"], "cancelled")
    equal(vm.images(), [], "images")


def test_a_client_that_goes_away_cancels_nothing(s):
    vm = s.boot()
    client = s.connect()
    client.send("vm-hibernate", name="vm", wait=True)
    poll(lambda: vm.info()["operation"], 5)
    client.close()
    vm.wait_state("hibernated/save", 30)


@version
def test_qemu_killed_during_saving(s):
    vm = s.boot()
    arguments = slow_save(vm)
    events = s.connect()
    operation = s.client.cmd("vm-hibernate", name="vm", **arguments)["operation"]
    events.event("OPERATION", lambda data: data["id"] == operation and data["phase"] == "Saving")
    os.kill(vm.info()["pid"], signal.SIGKILL)
    record = s.client.cmd("operation-wait", id=operation, seconds=30)
    equal((record["status"], record["error"]["class"]), ("failed", "QemuExited"))
    vm.wait_state("crashed", 10)
    poll(lambda: not image_files(s), 5, f"an empty pool ({image_files(s)})")
    s.qemu_io(vm, "read 0 512")
    mark = vm.mark()
    vm.start()
    vm.ready(mark)


@version
def test_daemon_killed_during_saving(s):
    vm = s.boot()
    arguments = slow_save(vm)
    before = vm.tick()
    events = s.connect()
    operation = s.client.cmd("vm-hibernate", name="vm", **arguments)["operation"]
    events.event("OPERATION", lambda data: data["id"] == operation and data["phase"] == "Saving")
    s.daemon.restart(kill=True)
    poll(lambda: vm.info()["operation"] is None, 40, "the end of the operation")
    poll(lambda: vm.state() in ("running/ok", "hibernated/save"), 20, "a good state")
    if vm.info()["state"] == "hibernated":
        vm.restore()
    vm.went_on(before)
    vm.ask("verify")


def test_daemon_restart_while_hibernated(s):
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    for kill in (False, True):
        s.daemon.restart(kill=kill)
        vm.expect("hibernated/save")
        equal(vm.images()[0]["state"], "complete")
    vm.start()
    vm.went_on(before)


def test_pool_is_missing(s):
    vm = s.boot()
    before = vm.tick()
    error = s.client.err("vm-hibernate", "NotFound", name="vm", pool="nowhere", wait=True)
    check("nowhere" in error.desc, error.desc)
    os.rename(s.daemon.pool, s.daemon.pool + ".away")
    error = s.client.err("vm-hibernate", ("IOError", "NotFound"), name="vm", wait=True)
    check("default" in error.desc or s.daemon.pool in error.desc, error.desc)
    vm.expect("running/ok")
    before = vm.went_on(before)
    if os.path.exists(s.daemon.pool):
        raise Failure("the missing pool was made anew")
    os.rename(s.daemon.pool + ".away", s.daemon.pool)
    # Where it was seen to be missing, the first who wants it has it looked at.
    poll(lambda: s.client.cmd("vm-hibernate", name="vm", **{"dry-run": True})["ok"], 5, "the pool to be back")
    vm.hibernate()
    vm.restore()
    vm.went_on(before)


def test_pool_is_full(s):
    s.daemon.pools["small"] = s.tmpfs("small", "24m")
    vm = s.boot()
    vm.fill(64, "random")
    before = vm.tick()
    error = s.client.err("vm-hibernate", "InsufficientSpace", name="vm", pool="small", wait=True)
    check(error.data["required"] > error.data["available"] > 0, error.data)
    phases = [entry["phase"] for entry in error.data["record"]["timeline"]]
    check("Pausing" not in phases, f"the guest was touched: {phases}")
    vm.expect("running/ok")
    now = vm.went_on(before, 30)
    # Without a reservation it is found out while writing: rolled back.
    error = s.client.err("vm-hibernate", ("InsufficientSpace", "IOError"), name="vm", pool="small",
                         reserve="none", wait=True, seconds=60)
    equal(error.data["record"]["rollback"], "done", error.data["record"])
    vm.expect("running/ok")
    vm.went_on(now)
    vm.ask("verify")
    vm.hibernate()
    vm.restore()
    vm.went_on(before)


@slow
def test_pool_is_read_only(s):
    folder = s.tmpfs("ro", "600m")
    s.daemon.pools["ro"] = folder
    equal({pool["state"] for pool in s.client.cmd("query-pools")}, {"ok"})
    s.daemon.stop()
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    s.daemon.start()
    vm = s.boot()
    before = vm.tick()
    error = s.client.err("vm-hibernate", "IOError", name="vm", pool="ro", wait=True)
    matches(error.desc, "[Rr]ead-only")
    phases = [entry["phase"] for entry in error.data["record"]["timeline"]]
    check("Pausing" not in phases, f"the guest was touched: {phases}")
    vm.expect("running/ok")
    vm.went_on(before, 30)
    subprocess.run(["mount", "-o", "remount,rw", folder], check=True)
    # Found again by itself.
    poll(lambda: "error" not in s.client.reply(s.client.send(
        "vm-hibernate", name="vm", pool="ro", wait=True)), 60, "the hibernation once it can be written",
         every=0.5)
    equal(vm.images()[0]["pool"], "ro")
    vm.restore()
    vm.went_on(before)


@version
def test_a_running_job_blocks(s):
    vm = s.boot()
    target = s.path("copy.qcow2")
    subprocess.run([qemu_program(s.qemu, "qemu-img"), "create", "-q", "-f", "qcow2", target,
                    "449M"], check=True)
    vm.monitor("blockdev-add", driver="qcow2", **{"node-name": "copy", "file": {
        "driver": "file", "filename": target}})
    vm.monitor("blockdev-backup", **{"job-id": "b", "device": "disk0", "target": "copy",
                                     "sync": "full", "speed": 1 << 16})
    error = s.client.err("vm-hibernate", ("Blocked", "Unsupported"), name="vm", wait=True)
    vm.expect("running/ok")
    matches(error.desc, "job|node")
    vm.tick()


def test_fields_of_the_spec(s):
    vm = s.vm()
    vm.spec["hibernate"] = {"level": 3, "keep": True, "timeout": 50}
    vm.spec["labels"] = {"tier": "web"}
    vm.boot()
    record = vm.hibernate()
    left = re.sub(r".*T|Z", "", record["deadline"])
    check(left, "deadline")
    vm.restore()
    image, = vm.images()
    equal((image["state"], image["kind"]), ("consumed", "kept"))
    equal(s.client.cmd("query-vms", selector="tier=web")[0]["name"], "vm")
    equal(s.client.cmd("query-vms", selector="tier=db"), [])
    s.client.cmd("image-delete", image=image["id"])
    equal(vm.images(), [])


@version
def test_silent_qemu(s):
    """A QEMU that answers nothing: the operation fails in time, and the VM is there afterwards."""
    vm = s.boot()
    before = vm.tick()
    pid = vm.info()["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        s.client.err("vm-hibernate", "Timeout", name="vm", wait=True, timeout=4, seconds=60)
    finally:
        os.kill(pid, signal.SIGCONT)
    poll(lambda: vm.info()["operation"] is None, 30)
    vm.wait_state("running/ok", 20)
    vm.went_on(before)
