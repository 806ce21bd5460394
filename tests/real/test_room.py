# SPDX-License-Identifier: LGPL-2.1-or-later
"""Room: reservations that add up, quotas, the bound against real images, standing room, capacity."""

import json
import os
import signal
import subprocess
import time

from lib import Skip, check, deadline, equal, matches, poll, slow, tag
from lib.faults import armed, revive, send_and_die, settled

MIB = 1 << 20
SMALL = "128M"      # a guest of it may need 200 MiB at most


def use_pool(s, size):
    """The default pool on a file system of its own."""
    s.daemon.pools["default"] = s.tmpfs("small", size)
    return s.daemon.pools["default"]


def hog(folder, keep=0, name="hog"):
    """Somebody else takes what is left there but `keep` bytes; his file."""
    path = os.path.join(folder, name)
    with open(path, "wb") as file:
        stat = os.statvfs(folder)
        os.posix_fallocate(file.fileno(), 0, stat.f_bavail * stat.f_frsize - keep)
    return path


def standing_vm(s, name="vm", **options):
    vm = s.vm(name, memory=SMALL, **options)
    vm.spec["storage"] = {"standing": True}
    return vm


def reserved(s, name="vm"):
    """"True/Held" of the condition StorageReserved, or None."""
    found = [c for c in s.client.cmd("query-vm", name=name)["conditions"] if c["type"] == "StorageReserved"]
    return f"{found[0]['status']}/{found[0]['reason']}" if found else None


def wait_reserved(s, status, name="vm", seconds=20):
    poll(lambda: reserved(s, name) == status, seconds, f"StorageReserved {status} of {name}, {reserved(s, name)}")


def pool(s, name="default"):
    return [p for p in s.client.cmd("query-pools") if p["name"] == name][0]


def standing_file(folder, name="vm"):
    return os.path.join(folder, name, ".standing", "memory.zst")


def held(folder, name="vm"):
    try:
        return os.stat(standing_file(folder, name)).st_blocks * 512
    except FileNotFoundError:
        return 0


def wait_exact(s, folder):
    """Waits until what stands is for the memory that QEMU said it has; the worst case."""
    poll(lambda: s.client.cmd("query-capacity", name="vm")["exact"], 20)
    worst = s.client.cmd("query-capacity", name="vm")["worst-case"]
    poll(lambda: worst <= held(folder) < worst + 2 * MIB, 20, f"room for {worst}, {held(folder)} are held")
    return worst


def gone(folder, name="vm"):
    poll(lambda: not os.path.exists(os.path.join(folder, name)), 20, f"the folder of {name} to go")


def give_back(s, folder, *names):
    """At the end room goes a moment after its VM."""
    for name in names:
        s.client.cmd("vm-quit", name=name)
        s.client.cmd("vm-undefine", name=name, images="delete")
        gone(folder, name)


# --- standing room ---

def test_standing_room_in_a_full_pool(s):
    """The pool is full but for what stands: the save has its room, undone or not."""
    folder = use_pool(s, "320m")
    vm = standing_vm(s)
    s.start()
    watch = s.connect()
    vm.define()
    watch.event("CONDITION", lambda data: data["vm"] == "vm" and data["status"] == "True")
    wait_reserved(s, "True/Held")
    worst = s.client.cmd("query-capacity", name="vm")
    check(not worst["exact"] and held(folder) >= worst["worst-case"], worst)
    others = hog(folder)
    vm.start()
    vm.ready()
    worst = wait_exact(s, folder)
    os.unlink(others)
    others = hog(folder)
    equal(reserved(s), "True/Held")
    vm.fill(48)
    before = vm.tick()
    # Another one without standing room has none.
    other = s.vm("other", memory=SMALL)
    other.define()
    equal([p["admitted"] for p in s.client.cmd("query-capacity", name="other")["pools"]], [False])
    # Cancelled while it is written: the room stands again, and nobody had it in between.
    op = s.client.cmd("vm-hibernate", name="vm", level=19)["operation"]
    poll(lambda: s.client.cmd("query-operation", id=op)["phase"] == "Saving", 30)
    check(not os.path.exists(standing_file(folder)), "the save took no standing room")
    s.client.cmd("operation-cancel", id=op)
    s.client.cmd("operation-wait", id=op)
    vm.expect("running/ok")
    wait_reserved(s, "True/Held")
    check(held(folder) >= worst, held(folder))
    equal(os.statvfs(folder).f_bavail, 0)
    record = vm.hibernate()
    equal(record["result"]["guaranteed"], True)
    wait_reserved(s, "True/InUse")
    vm.restore()
    vm.went_on(before)
    vm.verify()
    wait_reserved(s, "True/Held")
    equal(vm.images(), [])
    os.unlink(others)
    give_back(s, folder, "vm", "other")
    poll(lambda: pool(s)["standing"] == 0, 20)


def test_standing_room_for_one_of_two(s):
    """A definition succeeds where there is no room; it is taken when there is."""
    folder = use_pool(s, "400m")
    s.daemon.pools["second"] = s.path("second")
    one, two = standing_vm(s, "one"), standing_vm(s, "two")
    one.define()
    wait_reserved(s, "True/Held", "one")
    two.define()
    wait_reserved(s, "False/NoRoom", "two")
    message = [c for c in two.info()["conditions"] if c["type"] == "StorageReserved"][0]["message"]
    matches(message, r"not enough room: .*bytes\) required, .*bytes\) available in pool \"default\"")
    equal(held(folder, "two"), 0)
    poll(lambda: pool(s)["standing"] == held(folder, "one"), 20)
    # No longer wanted: the other one has it.
    s.client.cmd("vm-set", name="one", merge={"storage": {"standing": False}})
    wait_reserved(s, "True/Held", "two")
    equal(reserved(s, "one"), None)
    gone(folder, "one")
    # To another pool and back.
    s.client.cmd("vm-set", name="two", merge={"hibernate": {"pool": "second"}})
    poll(lambda: held(s.path("second"), "two") > 0, 20)
    gone(folder, "two")
    wait_reserved(s, "True/Held", "two")
    s.client.cmd("vm-set", name="two", merge={"hibernate": {"pool": "nowhere"}})
    wait_reserved(s, "Unknown/PoolMissing", "two")
    gone(s.path("second"), "two")
    give_back(s, folder, "one", "two")


def test_standing_room_and_the_end_of_the_daemon(s):
    """What is found at the start is compared with the specs; a pool may come later."""
    folder = use_pool(s, "700m")
    vm = standing_vm(s)
    vm.define()
    wait_reserved(s, "True/Held")
    before = held(folder)
    for name in ("ghost", "other"):
        os.makedirs(os.path.join(folder, name, ".standing"))
    s.daemon.restart(kill=True)
    wait_reserved(s, "True/Held")
    equal(held(folder), before)
    gone(folder, "ghost")
    gone(folder, "other")
    # Killed at once after the spec changed, both ways.
    for wanted in (False, True, False, True):
        s.client.cmd("vm-set", name="vm", merge={"storage": {"standing": wanted}})
        s.daemon.restart(kill=True)
    wait_reserved(s, "True/Held")
    s.client.cmd("vm-set", name="vm", merge={"storage": {"standing": False}})
    s.daemon.restart(kill=True)
    gone(folder)
    s.client.cmd("vm-set", name="vm", merge={"storage": {"standing": True}})
    wait_reserved(s, "True/Held")
    give_back(s, folder, "vm")


def test_standing_room_in_a_pool_that_is_away(s):
    s.daemon.pools["away"] = s.path("away")
    vm, other = standing_vm(s), standing_vm(s, "other")
    for one in (vm, other):
        one.spec["hibernate"] = {"pool": "away"}
        one.define()
        wait_reserved(s, "True/Held", one.name)
    s.daemon.stop()
    os.rename(s.path("away"), s.path("elsewhere"))
    # Not made anew while it is expected to come back: a file is in its place.
    with open(s.path("away"), "w", encoding="ascii"):
        pass
    s.daemon.start()
    wait_reserved(s, "Unknown/PoolMissing")
    s.client.cmd("vm-undefine", name="other")
    os.unlink(s.path("away"))
    os.rename(s.path("elsewhere"), s.path("away"))
    wait_reserved(s, "True/Held", seconds=90)
    gone(s.path("away"), "other")
    give_back(s, s.path("away"), "vm")


@slow
def test_killed_while_it_saves_into_standing_room(s):
    """Recovery gives the room back as the roll-back does."""
    folder = use_pool(s, "320m")
    vm = standing_vm(s)
    vm.boot()
    wait_exact(s, folder)
    vm.fill(48)
    others = hog(folder)
    before = vm.tick()
    op = s.client.cmd("vm-hibernate", name="vm", level=19)["operation"]
    poll(lambda: s.client.cmd("query-operation", id=op)["phase"] == "Saving", 30)
    s.daemon.restart(kill=True)
    vm.wait_state("running/ok", 60)
    vm.went_on(before)
    wait_reserved(s, "True/Held")
    equal(os.statvfs(folder).f_bavail, 0)
    equal(vm.images(), [])
    vm.hibernate()
    s.daemon.restart(kill=True)
    wait_reserved(s, "True/InUse")
    s.client.cmd("vm-discard", name="vm")
    wait_reserved(s, "True/Held")
    os.unlink(others)
    give_back(s, folder, "vm")


@tag("faults")
@deadline(240)
def test_standing_room_and_each_death_of_a_save(s):
    """Wherever the daemon dies: the room stands, or the image has it; never both, never neither."""
    folder = use_pool(s, "320m")
    vm = standing_vm(s)
    vm.boot()
    wait_exact(s, folder)
    vm.fill(16)
    others = hog(folder)
    for fault in s.rows(("create-image:die-after-effect", "save-state:die-after-effect"),
                        ("create-image:die-after-enter", "write-manifest:die-after-effect")) \
            + ("release-stream:die-before",):
        before = vm.tick()
        armed(s, f"hibernate/{fault}")
        vm.wait_state("running/ok")
        wait_reserved(s, "True/Held")
        send_and_die(s, "vm-hibernate", name="vm")
        check(len(os.listdir(os.path.join(folder, "vm"))) == 1, os.listdir(os.path.join(folder, "vm")))
        revive(s)
        settled(s)
        if fault.startswith("release"):     # past the commit
            wait_reserved(s, "True/InUse")
            vm.restore()
        wait_reserved(s, "True/Held")
        equal(os.listdir(os.path.join(folder, "vm")), [".standing"])
        equal(vm.images(), [])
        vm.went_on(before)
    vm.verify()
    os.unlink(others)
    give_back(s, folder, "vm")


@slow
def test_standing_room_follows_the_memory(s):
    """A DIMM that is plugged needs room, too."""
    folder = use_pool(s, "700m")
    vm = s.vm("vm", memory=f"{SMALL},slots=2,maxmem=1G")
    vm.spec["storage"] = {"standing": True}
    vm.boot()
    before = wait_exact(s, folder)
    vm.monitor("object-add", **{"qom-type": "memory-backend-ram", "id": "m1", "size": 64 * MIB})
    vm.monitor("device_add", driver="pc-dimm", id="d1", memdev="m1")
    poll(lambda: held(folder) >= before + 64 * MIB, 20)
    after = s.client.cmd("query-capacity", name="vm")["worst-case"]
    check(before + 64 * MIB < after < before + 66 * MIB, (before, after))
    give_back(s, folder, "vm")


def test_where_nothing_is_guaranteed_it_is_said(s):
    """ramfs allocates nothing beforehand: room is promised, and warned of."""
    folder = s.path("ramfs")
    os.mkdir(folder)
    done = subprocess.run(["mount", "-t", "ramfs", "-o", "mode=0700", "ramfs", folder], check=False)
    if done.returncode:
        raise Skip("ramfs cannot be mounted here")
    s.at_end(lambda: subprocess.run(["umount", "-l", folder], check=False))
    s.daemon.pools["default"] = folder
    vm = standing_vm(s)
    vm.boot()
    wait_reserved(s, "True/NotGuaranteed")
    equal(held(folder), 0)
    poll(lambda: pool(s)["standing"] > 128 * MIB, 20)
    equal((pool(s)["guaranteed"], pool(s)["reserved"]), (False, 0))
    dry = s.client.cmd("vm-hibernate", name="vm", **{"dry-run": True})
    check(any("is not guaranteed" in text for text in dry["warnings"]), dry)
    # Promises are made anew.
    s.daemon.restart(kill=True)
    wait_reserved(s, "True/NotGuaranteed")
    record = vm.hibernate()
    equal(record["result"]["guaranteed"], False)
    check(any("is not guaranteed" in text for text in record["warnings"]), record)
    poll(lambda: pool(s)["standing"] == 0, 20)
    vm.restore()
    wait_reserved(s, "True/NotGuaranteed")
    give_back(s, folder, "vm")


# --- reservations, quotas ---

@slow
@deadline(240)
def test_two_reservations_add_up(s):
    """Room for one: exactly one is admitted, the other one's guest is not touched."""
    folder = use_pool(s, "300m")
    vms = [s.boot(name, memory=SMALL) for name in ("one", "two")]
    clients = [s.connect() for _ in vms]
    sent = [client.send("vm-hibernate", name=vm.name, wait=True) for client, vm in zip(clients, vms)]
    answers = [client.reply(id_, seconds=120) for client, id_ in zip(clients, sent)]
    errors = [answer["error"] for answer in answers if "error" in answer]
    equal(len(errors), 1, answers)
    equal(errors[0]["class"], "InsufficientSpace", errors)
    equal(errors[0]["data"]["pool"], "default", errors)
    check(errors[0]["data"]["required"] > errors[0]["data"]["available"], errors)
    phases = [entry["phase"] for entry in errors[0]["data"]["record"]["timeline"]]
    check("Pausing" not in phases, phases)
    loser = vms[0] if "error" in answers[0] else vms[1]
    loser.expect("running/ok")
    equal(os.listdir(os.path.join(folder)).count(loser.name), 0)
    # Written, the other one's image is small: now there is room.
    loser.hibernate()
    for vm in vms:
        vm.restore()
        vm.tick()


def hibernatable(vm):
    condition, = [c for c in vm.info()["conditions"] if c["type"] == "Hibernatable"]
    return condition["status"], condition["reason"]


def test_quotas(s):
    vm = s.boot(memory=SMALL)
    s.client.cmd("vm-set", name="vm", merge={"storage": {"quota": 100 * MIB}})
    error = s.client.err("vm-hibernate", "InsufficientSpace", name="vm", wait=True)
    matches(error.desc, "quota of the VM")
    equal(error.data["quota"], 100 * MIB)
    check(error.data["required"] > error.data["available"] == 100 * MIB, error.data)
    said = s.client.cmd("query-capacity", name="vm")["pools"][0]
    equal((said["admitted"], said["quota-left"]), (False, 100 * MIB))
    matches(said["why-not"], "quota of the VM")
    s.client.cmd("vm-set", name="vm", merge={"storage": {"quota": 101 * MIB}})
    equal(hibernatable(vm), ("True", "Ok"), "what was found was of another spec")
    equal(s.client.cmd("vm-hibernate", name="vm", **{"dry-run": True})["ok"], False)
    equal(hibernatable(vm), ("Unknown", "InsufficientSpace"))
    s.client.cmd("vm-set", name="vm", merge={"storage": {"quota": 1000 * MIB}})
    s.client.err("vm-hibernate", "NotFound", name="vm", pool="none", wait=True)
    equal(hibernatable(vm), ("True", "Ok"), "the pool was the command's own")
    vm.hibernate()
    # Below what is used: restore and deletion go on, nothing new comes.
    s.client.cmd("vm-set", name="vm", merge={"storage": {"quota": 1}})
    vm.restore(keep=True)
    vm.tick()
    s.client.err("vm-hibernate", "InsufficientSpace", name="vm", wait=True)
    s.client.cmd("image-delete", image=vm.images()[0]["id"])
    equal(vm.images(), [])


# --- the bound ---

@slow
def test_a_real_image_is_below_its_bound(s):
    """Video memory, ROMs and a DIMM count; nothing compresses."""
    vm = s.boot(memory="256M,slots=2,maxmem=1G", extra=[
        "-device", "VGA,vgamem_mb=16", "-object", "memory-backend-ram,id=m0,size=64M",
        "-device", "pc-dimm,id=d0,memdev=m0"])
    capacity = s.client.cmd("query-capacity", name="vm")
    check(capacity["exact"], capacity)
    check(capacity["worst-case"] > (256 + 64 + 16) * MIB, capacity)
    estimate = s.client.cmd("vm-hibernate", name="vm", **{"dry-run": True})["estimate"]
    equal(estimate["bytes"], capacity["worst-case"])
    vm.fill(128)
    record = vm.hibernate()
    size = os.path.getsize(vm.image_file())
    check(128 * MIB < size < capacity["worst-case"], (size, capacity))
    # At rest its memory is known from its last run; what it took tells what to expect.
    after = s.client.cmd("query-capacity", name="vm")
    equal((after["worst-case"], after["basis"]), (capacity["worst-case"], "history"))
    check(size <= after["expected"] <= after["worst-case"], (size, after))
    equal(after["restore"]["mode"], "eager")
    equal(record["result"]["guaranteed"], pool(s)["guaranteed"])
    vm.restore()
    vm.verify()
    equal(s.client.cmd("query-capacity", name="vm")["restore"]["mode"], None)


# --- query-capacity ---

def test_capacity(s):
    vm = s.vm("vm", memory=SMALL)
    vm.define()
    said = s.client.cmd("query-capacity", name="vm")
    equal((said["exact"], said["basis"], said["restore"]["mode"]), (False, "worst-case", None))
    equal(said["expected"], said["worst-case"])
    check((128 + 64) * MIB < said["worst-case"] < (128 + 64 + 80) * MIB, said)
    vm.start()
    vm.ready()
    running = s.client.cmd("query-capacity", name="vm")
    equal((running["exact"], running["basis"]), (True, "memory"))
    check(running["expected"] <= running["worst-case"] <= said["worst-case"], (running, said))
    one = running["pools"][0]
    equal((one["pool"], one["admitted"]), ("default", True))
    # A QEMU that does not answer keeps nobody waiting for long, and it is said.
    os.kill(vm.info()["pid"], signal.SIGSTOP)
    try:
        start = time.monotonic()
        silent = s.client.cmd("query-capacity", name="vm", seconds=15)
        check(time.monotonic() - start < 8, "too long")
        equal(silent["worst-case"], running["worst-case"])
        matches(silent["message"], "does not answer")
    finally:
        os.kill(vm.info()["pid"], signal.SIGCONT)
    text = s.torpor("capacity", "vm").stdout
    matches(text, r"(?s)worst case +\d.*default")
    equal(json.loads(s.torpor("capacity", "vm", "--json").stdout)["worst-case"], running["worst-case"])
    s.client.err("query-capacity", "NotFound", name="nobody")


@slow
def test_standing_room_killed_again_and_again(s):
    """kill -9 at any instant of a change: what is wanted is there in the end, and nothing else."""
    folder = use_pool(s, "700m")
    vm = standing_vm(s)
    vm.define()
    for turn in range(12):
        merge = {"storage": {"standing": turn % 3 != 0}}
        id_ = s.client.send("vm-set", name="vm", merge=merge)
        time.sleep(turn * 0.004)
        s.daemon.restart(kill=True)
        del id_
        spec = vm.info()["spec"]["storage"]["standing"]
        if spec:
            wait_reserved(s, "True/Held")
        else:
            gone(folder)
    give_back(s, folder, "vm")
