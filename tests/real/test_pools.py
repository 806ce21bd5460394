# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pools: defined and undefined, low and full, away and back, hanging, shared by two daemons."""

import ctypes
import json
import os
import shutil
import subprocess
import time

from lib import Client, Failure, Skip, check, deadline, equal, matches, poll, slow

MIB = 1 << 20
MNT_DETACH = 2


def pool(s, name):
    found = [p for p in s.client.cmd("query-pools") if p["name"] == name]
    equal(len(found), 1, f"pools named {name}")
    return found[0]


def wait_pool(s, name, state, seconds=20):
    poll(lambda: pool(s, name)["state"] == state, seconds, f"pool {name} {state}")
    return pool(s, name)


def define(s, name, path, **arguments):
    return s.client.cmd("pool-define", name=name, path=path, **arguments)


def folder(s, name):
    path = s.path(name)
    os.makedirs(path, 0o700)
    return path


class Hanging:
    """A file system mounted on `path` that answers nothing, like that of a server that is gone."""

    def __init__(self, s, path):
        self.path = path
        self.libc = ctypes.CDLL(None, use_errno=True)
        try:
            self.fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise Skip(f"no /dev/fuse: {error}") from None
        options = f"fd={self.fd},rootmode=40000,user_id=0,group_id=0,allow_other"
        if self.libc.mount(b"hangs", path.encode(), b"fuse", 0, options.encode()) != 0:
            error = os.strerror(ctypes.get_errno())
            os.close(self.fd)
            raise Skip(f"fuse cannot be mounted here: {error}")
        s.at_end(self.end)

    def end(self):
        """Whoever hangs in it gets an error; what was below is there again."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
            self.libc.umount2(self.path.encode(), MNT_DETACH)


def test_bad_paths(s):
    """Each is refused by class and sentence, and leaves nothing."""
    taken = folder(s, "taken")
    os.makedirs(os.path.join(taken, "sub"))
    os.makedirs(s.path("open"))
    os.chmod(s.path("open"), 0o777)
    os.symlink("taken", s.path("link"))
    with open(s.path("file"), "w", encoding="ascii"):
        pass
    foreign = folder(s, "foreign")
    os.makedirs(os.path.join(foreign, "vm"))
    with open(os.path.join(foreign, ".torpor-pool"), "w", encoding="ascii") as file:
        file.write("{}\n")
    bound = folder(s, "bound")
    if subprocess.run(["mount", "--bind", taken, bound], check=False).returncode == 0:
        s.at_end(lambda: subprocess.run(["umount", "-l", bound], check=False))
    else:
        bound = taken
    define(s, "a", taken)
    before = s.daemon.descriptors()
    rows = [
        ("relative", "GenericError", "absolute path"), ("/", "GenericError", "contains"),
        (s.path("a\nb"), "GenericError", "control characters"), (s.path("x" * 256), "GenericError", "255"),
        (s.path("file"), "IOError", "not a folder"), (s.path("link"), "IOError", "symbolic link"),
        (s.path("link") + "/", "IOError", "symbolic link"),
        (s.path("open"), "PermissionDenied", "by everybody"),
        (s.path("none/pool"), "IOError", "No such file"), (taken, "Exists", 'pool "a"'),
        (taken + "/", "Exists", 'pool "a"'), (taken + "/sub/..", "Exists", 'pool "a"'),
        (bound, "Exists", 'pool "a"'), (taken + "/sub", "GenericError", 'inside pool "a"'),
        (taken + "/new", "GenericError", 'inside pool "a"'),
        (s.path("link/sub"), "GenericError", 'inside pool "a"'),
        (s.daemon.pool + "/new", "GenericError", 'inside pool "default"'),
        (s.dir, "GenericError", "contains"), (s.daemon.state, "GenericError", "state directory"),
        (s.daemon.state + "/x", "GenericError", "inside the state directory"),
        (s.daemon.run, "GenericError", "runtime directory"),
        (foreign + "/vm", "GenericError", "inside the pool"),
    ]
    for path, cls, words in rows:
        error = s.client.err("pool-define", cls, name="b", path=path)
        matches(error.desc, words, f"the words about {path}")
        equal(error.data.get("argument"), "path", f"data of {path}")
    for path in (taken + "/sub", taken + "/new", s.daemon.pool + "/new", s.daemon.state + "/x",
                 s.daemon.state, s.daemon.run, s.dir, foreign + "/vm"):
        check(not os.path.exists(os.path.join(path, ".torpor-pool")), f"{path} became a pool")
    check(not os.path.exists(taken + "/new"), "a folder was left")
    equal(sorted(p["name"] for p in s.client.cmd("query-pools")), ["a", "default"])
    poll(lambda: len(s.daemon.descriptors()) <= len(before), 15, "no descriptor more")

    for arguments, name in (({"quota": 1000, "low_water": 2000}, "low-water"),
                            ({"low_water": 1 << 60}, "low-water"), ({"quota": -1}, "quota"),
                            ({"quota": "1G"}, "quota")):
        for path in (taken, folder(s, f"sizes{len(os.listdir(s.dir))}")):
            error = s.client.err("pool-define", "GenericError", name="a" if path == taken else "b",
                                 path=path, **arguments)
            equal(error.data["argument"], name)
            check(path == taken or not os.listdir(path), "a refused definition left something")
    equal(pool(s, "a")["quota"], 0)
    for verb, arguments in (("pool-define", {"path": taken}), ("pool-undefine", {})):
        error = s.client.err(verb, "Conflict", name="default", **arguments)
        equal(error.data["source"], "config")
    s.client.err("pool-undefine", "NotFound", name="b")
    s.client.cmd("pool-undefine", name="a")


def test_definitions_last(s):
    """Over a restart and a kill -9; equal ones change nothing; nothing on disk goes with them."""
    path, other = folder(s, "a"), folder(s, "b")
    s.start()
    define(s, "a", path, quota=64 * MIB)
    define(s, "a", path, quota=64 * MIB)
    define(s, "a", path + "//", quota=32 * MIB, low_water=2 * MIB)
    s.daemon.restart(kill=True)
    info = pool(s, "a")
    equal((info["path"], info["source"], info["state"]), (path, "api", "ok"))
    equal((info["quota"], info["low-water"]), (32 * MIB, 2 * MIB))
    equal(pool(s, "default")["source"], "config")
    # Nothing uses it: it may be somewhere else, and the old folder is free again.
    define(s, "a", other)
    define(s, "b", path + "/.")
    s.daemon.restart()
    equal([(p["name"], p["path"], p["quota"]) for p in s.client.cmd("query-pools")],
          [("a", other, 0), ("b", path + "/.", 0), ("default", s.daemon.pool, 0)])
    # Two at once, of one folder: one gets it.
    ids = [s.client.send("pool-define", name=name, path=s.path("c")) for name in ("c", "d")]
    replies = [s.client.reply(i) for i in ids]
    equal(sorted("return" in reply for reply in replies), [False, True], f"{replies}")
    for entry in s.client.cmd("query-pools"):
        if entry["source"] == "api":
            s.client.cmd("pool-undefine", name=entry["name"])
    check(os.path.exists(os.path.join(other, ".torpor-pool")), "the owner file was deleted")
    with open(os.path.join(s.daemon.state, "host.json"), encoding="utf-8") as file:
        equal(json.load(file)["pools"], {})
    s.daemon.restart(kill=True)
    equal([p["name"] for p in s.client.cmd("query-pools")], ["default"])


def test_quota_and_standing_room(s):
    """More quota is room at once; less than what stands is refused, in sizes that people read."""
    path = folder(s, "a")
    s.start()
    define(s, "a", path, quota=MIB)
    vm = s.vm(disk=False, memory="64M")
    vm.spec.update(hibernate={"pool": "a"}, storage={"standing": True})
    vm.define()

    def reserved():
        said = {c["type"]: c["reason"] for c in vm.info()["conditions"]}
        equal(said["Restorable"], "NotHibernated", "of a VM that never ran")
        return said["StorageReserved"]

    why = s.client.cmd("query-capacity", name="vm")["restore"]
    equal((why["mode"], why["why"]), (None, "the VM is not hibernated"))
    poll(lambda: reserved() == "NoRoom", 10, "no room")
    define(s, "a", path, quota=900 * MIB)
    poll(lambda: reserved() == "Held", 5, "room, as the quota is larger")
    poll(lambda: pool(s, "a")["standing"] > 64 * MIB, 5, "the room in the pool's figures")
    error = s.client.err("pool-define", "GenericError", name="a", path=path, quota=2 * MIB)
    matches(error.desc, r"'quota' of 2.* MiB is less than .* standing room, \d+.* MiB$")
    s.client.cmd("vm-undefine", name="vm")
    poll(lambda: pool(s, "a")["standing"] == 0, 10, "the room is given back")
    s.client.cmd("pool-undefine", name="a")


def test_two_pools(s):
    """Spec and argument choose; a pool in use is not forgotten; a quota below use is refused."""
    fast, big = folder(s, "fast"), folder(s, "big")
    s.start()
    define(s, "fast", fast)
    define(s, "big", big)
    one, two = s.vm("one", disk=False, memory="128M"), s.vm("two", disk=False, memory="128M")
    one.spec["hibernate"] = {"pool": "fast"}
    one.boot()
    two.boot()
    error = s.client.err("pool-undefine", "InvalidState", name="fast")
    equal(error.data["vms"], ["one"])
    before = one.tick(), two.tick()
    one.hibernate()
    two.hibernate(pool="big")
    equal([i["pool"] for i in one.images() + two.images()], ["fast", "big"])
    check(poll(lambda: pool(s, "big")["used"], 10), "used")
    used = pool(s, "big")["used"]
    error = s.client.err("pool-define", "GenericError", name="big", path=big, quota=used - 4096)
    equal((error.data["argument"], error.data["limit"]), ("quota", used))
    define(s, "big", big, quota=used + 64 * MIB)
    error = s.client.err("pool-undefine", "InvalidState", name="big")
    equal(error.data["vms"], ["two"])
    error = s.client.err("pool-define", "Conflict", name="big", path=s.path("elsewhere"))
    equal((error.data["vms"], error.data["path"]), (["two"], big))
    s.daemon.restart(kill=True)
    one.restore()
    two.restore(keep=True)
    one.went_on(before[0])
    two.went_on(before[1])
    s.client.cmd("vm-set", name="one", merge={"hibernate": None})
    s.client.cmd("pool-undefine", name="fast")
    for image in two.images():
        s.client.cmd("image-delete", image=image["id"])
    s.client.cmd("pool-undefine", name="big")
    equal((os.listdir(fast), os.listdir(big)), ([".torpor-pool"], [".torpor-pool"]), "what is left")
    s.client.err("vm-hibernate", "NotFound", name="two", pool="big", wait=True)


def test_away_and_back(s):
    """Moved away under a hibernated VM, with a bare folder in its place; back without a restart."""
    path = folder(s, "pool2")
    away = path + ".away"
    s.start()
    define(s, "two", path)
    vm = s.vm(disk=False, memory="128M")
    vm.spec["hibernate"] = {"pool": "two"}
    vm.boot()
    before = vm.tick()
    vm.hibernate()
    watch = s.connect()
    os.rename(path, away)
    os.makedirs(path, 0o700)        # as what an unmounted file system leaves bare
    # Whoever needs it next finds out, for all: not the look that is due once a minute.
    equal(s.client.cmd("vm-restore", name="vm", dry_run=True)["blockers"][0]["class"], "IOError")
    event = watch.event("POOL", lambda data: data["pool"] == "two", 5)
    equal(event["data"]["state"], "missing")
    check("available" not in event["data"], event)
    matches(event["data"]["message"], "no longer the folder", "the message")
    equal([i["state"] for i in vm.images()], ["unavailable"])
    condition = [c for c in vm.info()["conditions"] if c["type"] == "Restorable"][0]
    equal((condition["status"], condition["reason"]), ("False", "PoolMissing"))
    matches(condition["message"], "pool2", "the condition's message")
    error = s.client.err("vm-restore", "IOError", name="vm", wait=True)
    matches(error.desc, "pool two .* is missing", "the error")
    vm.expect("hibernated/save")
    # A daemon that starts meanwhile does not take the bare folder for the pool.
    s.daemon.restart()
    matches(pool(s, "two")["message"], r"no file \.torpor-pool", "the message")
    check(not os.listdir(path), "the bare folder was made a pool")
    watch = s.connect()
    os.rmdir(path)
    os.rename(away, path)
    event = watch.event("POOL", lambda data: data["pool"] == "two", 15)
    equal((event["data"]["state"], event["data"]["message"]), ("ok", ""))
    equal([i["state"] for i in vm.images()], ["complete"])
    vm.restore()
    vm.went_on(before)
    s.client.cmd("vm-set", name="vm", merge={"hibernate": None})
    s.client.cmd("pool-undefine", name="two")


def test_low_and_full(s):
    """Events at the thresholds, none in between; an image that went makes room."""
    path = s.tmpfs("small", "64m")
    s.start()
    watch = s.connect()
    watch.cmd("event-filter", events=["POOL"])

    def others(mib):
        file = os.path.join(path, "others")
        if os.path.exists(file):
            os.unlink(file)
        if mib:
            with open(file, "wb") as out:
                os.posix_fallocate(out.fileno(), 0, int(mib * MIB))
        define(s, "small", path, low_water=16 * MIB)    # has it looked at
        time.sleep(0.3)
        watch.drain()
        told = [e["data"]["state"] for e in watch.events if e["data"]["pool"] == "small"]
        watch.events.clear()
        return told

    equal(others(0), ["ok"])
    equal(others(47), [])
    equal(others(50), ["low"])
    equal(others(46), [])           # 18 MiB are left: low until there are 20
    equal(others(63.5), ["full"])
    equal(others(46), ["low"])
    equal(others(40), ["ok"])
    equal(others(0), [])
    equal(pool(s, "small")["low-water"], 16 * MIB)
    table = s.torpor("df").stdout
    matches(table, r"small", "df")
    s.client.cmd("pool-undefine", name="small")


def hang(s, path):
    """Lets the pool's worker run into a file system that hangs."""
    hanging = Hanging(s, path)
    define(s, "stuck", path)        # has it looked at
    return hanging


@slow
@deadline(200)
def test_hangs(s):
    """One that hangs is missing, blocks nobody, and is as before when it answers again."""
    path = folder(s, "stuck")
    # The leak sanitizer would stop all threads, and so wait for the one that hangs, which keeps
    # what it works with.
    s.daemon.env = {"ASAN_OPTIONS": "detect_leaks=0:exitcode=77"}
    s.start()
    define(s, "stuck", path)
    saved, vm = s.vm("saved", disk=False, memory="128M"), s.vm("vm", disk=False, memory="128M")
    saved.boot()
    vm.boot()
    was = saved.tick()
    saved.hibernate(pool="stuck")
    hanging = hang(s, path)
    began = time.monotonic()

    def quick(what, function, limit=2):
        start = time.monotonic()
        result = function()
        check(time.monotonic() - start < limit, f"{what} took {time.monotonic() - start:.1f} s")
        return result

    before = vm.tick()
    vm.hibernate()
    vm.restore()
    vm.went_on(before)
    # A new pool in what hangs: an error in time, others are served meanwhile.
    os.makedirs(s.path("new"))
    other = Hanging(s, s.path("new"))
    request = s.client.send("pool-define", name="new", path=s.path("new"))
    asked = time.monotonic()
    while pool(s, "stuck")["state"] != "missing":
        quick("query-pools", lambda: s.client.cmd("query-pools"))
        check(time.monotonic() - began < 30, "the pool that hangs is not missing")
        time.sleep(0.2)
    matches(pool(s, "stuck")["message"], r"does not answer for \d+ s", "the message")
    reply = s.client.reply(request, 20)
    equal(reply["error"]["class"], "Timeout", f"{reply}")
    check(time.monotonic() - asked < 14, "the definition was not answered in time")
    equal([i["state"] for i in saved.images()], ["unavailable"])
    error = quick("vm-restore", lambda: s.client.err("vm-restore", "IOError", name="saved",
                                                     wait=True), 5)
    matches(error.desc, "does not answer", "the error")
    quick("vm-hibernate", lambda: s.client.err("vm-hibernate", "IOError", name="vm", pool="stuck",
                                               wait=True), 5)
    vm.went_on(before, 2000)
    # It ends and starts all the same.
    start = time.monotonic()
    s.daemon.stop()
    check(time.monotonic() - start < 15, f"the end took {time.monotonic() - start:.1f} s")
    s.daemon.start()
    saved.expect("hibernated/save")
    equal(pool(s, "stuck")["state"], "missing")
    vm.wait_state("running/ok")
    hanging.end()
    other.end()
    wait_pool(s, "stuck", "ok")
    equal([p["name"] for p in s.client.cmd("query-pools")], ["default", "stuck"])
    saved.restore()
    saved.went_on(was)
    s.client.cmd("pool-undefine", name="stuck")


def test_two_daemons(s):
    """The second engine of a pool cannot even see its image; it has the pool after the first."""
    vm = s.boot(disk=False, memory="128M")
    before = vm.tick()
    vm.hibernate()
    image = vm.images()[0]["id"]
    other = s.new_daemon(s.path("other"), pools={"default": s.path("other/pool"),
                                                 "shared": s.daemon.pool})
    os.makedirs(s.path("other"))
    other.start()
    with Client(other.socket) as client:
        def shared():
            return [p for p in client.cmd("query-pools") if p["name"] == "shared"][0]

        equal(shared()["state"], "missing")
        matches(shared()["message"], f"in use by process {s.daemon.pid} ", "the message")
        error = client.err("pool-define", "Busy", name="again", path=s.daemon.pool)
        matches(error.desc, f"process {s.daemon.pid} ", "the words")
        client.cmd("vm-define", name="vm", spec=vm.spec)
        client.err("vm-restore", ("NotFound", "IOError"), name="vm", image=image,
                   allow=["other-vm"], wait=True)
        equal(client.cmd("query-vm", name="vm")["state"], "shutoff")
        vm.restore()
        vm.went_on(before)
        vm.hibernate()
        # The first one goes: the second takes over by itself, and the first is refused in turn.
        s.daemon.stop()
        poll(lambda: shared()["state"] == "ok", 15, "the pool taken over")
        s.daemon.start()
        matches(pool(s, "default")["message"], f"in use by process {other.pid} ", "the message")
        s.client.err("vm-restore", "IOError", name="vm", wait=True)
        vm.expect("hibernated/save")
        client.cmd("vm-undefine", name="vm", images="keep")
    other.stop()
    wait_pool(s, "default", "ok", 15)
    vm.restore()
    vm.went_on(before)


def test_another_host(s):
    """A pool of another host is left alone until its owner file says otherwise."""
    s.start()
    path = folder(s, "theirs")
    define(s, "theirs", path)
    s.daemon.stop()
    owner = os.path.join(path, ".torpor-pool")
    with open(owner, encoding="utf-8") as file:
        content = json.load(file)
    content.update(host="elsewhere", machine="0123456789abcdef",
                   instance="11111111-2222-3333-4444-555555555555")
    with open(owner, "w", encoding="utf-8") as file:
        json.dump(content, file)
    s.daemon.start()
    info = pool(s, "theirs")
    equal(info["state"], "missing")
    matches(info["message"], "belongs to host elsewhere", "the message")
    with open(owner, encoding="utf-8") as file:
        equal(json.load(file)["host"], "elsewhere")
    with open(owner, "w", encoding="utf-8"):
        pass
    wait_pool(s, "theirs", "ok", 15)
    s.client.cmd("pool-undefine", name="theirs")
    shutil.rmtree(path)


@slow
def test_defined_and_undefined_often(s):
    """Nothing is left of a hundred: no thread, no descriptor."""
    s.start()
    threads = len(os.listdir(f"/proc/{s.daemon.pid}/task"))
    for _ in range(100):
        define(s, "a", s.path("often"))
        s.client.cmd("pool-undefine", name="a")
    try:
        poll(lambda: len(os.listdir(f"/proc/{s.daemon.pid}/task")) <= threads, 20)
    except Failure:
        raise Failure("threads are left") from None
