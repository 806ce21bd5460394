# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pools on file systems of each kind: what is guaranteed, full before and in the middle, away, late."""

import errno
import os
import shutil
import subprocess
import time

from lib import Skip, check, deadline, equal, poll, slow
from lib.faultlib import DELAY, FAIL, HANG, FailCall
from lib.faults import MOVING, no_image, one_image
from lib.tiny import TinyVm

MIB = 1 << 20
SIZES = {"ext4": 128, "xfs": 320, "btrfs": 256}


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skip(f"{command[0]}: {done.stderr.strip()[-200:]}")


class Mounted:
    """A file system of that kind, in a file on a loop device; the scenario's pool is in it."""

    def __init__(self, s, kind):
        self.path = s.path(kind)
        self.image = s.path(f"{kind}.img")
        self.kind = kind
        program = shutil.which(f"mkfs.{kind}")
        if not program:
            raise Skip(f"no mkfs.{kind}")
        if not os.path.exists("/dev/loop-control"):
            raise Skip("no loop devices")
        with open(self.image, "wb") as file:
            file.truncate(SIZES[kind] * MIB)
        run(program, "-q", self.image)
        os.mkdir(self.path)
        self.mount()
        s.at_end(lambda: subprocess.run(["umount", "-l", self.path], check=False,
                                        stderr=subprocess.DEVNULL))
        use_pool(s, self.path)

    def mount(self, how="rw"):
        run("mount", "-o", f"loop,{how}", self.image, self.path)
        os.chmod(self.path, 0o700)
        shutil.rmtree(os.path.join(self.path, "lost+found"), ignore_errors=True)

    def away(self):
        run("umount", "-l", self.path)

    def remount(self, how):
        run("mount", "-o", f"remount,{how}", self.path)


def use_pool(s, path):
    s.daemon.pool = path
    s.daemon.pools["default"] = path


def pool(s, name="default"):
    return [info for info in s.client.cmd("query-pools") if info["name"] == name][0]


def settled(vm):
    poll(lambda: not vm.cmd("query-vm")["operation"]
         and vm.cmd("query-vm")["state"] not in MOVING, 40, "the end of the operation")
    return vm.state()


def refused(s, vm, cls, words, **arguments):
    """A hibernation that fails; the VM runs, and nothing is left."""
    error = s.client.err("vm-hibernate", cls, name=vm.name, wait=True, seconds=60, **arguments)
    check(words in error.desc.lower(), f"not said: {words}: {error}")
    equal(settled(vm), "running/ok", "state")
    vm.runs()
    equal(vm.images(), [], "images")
    return error


def there_and_back(vm):
    vm.hibernate()
    vm.expect("hibernated/save")
    equal([image["state"] for image in vm.images()], ["complete"], "images")
    vm.restore()
    vm.runs()
    equal(vm.images(), [], "images")


def fill(folder, leave=0):
    """All but so many bytes of it are taken; the file."""
    path = os.path.join(folder, "others")
    stat = os.statvfs(folder)
    with open(path, "wb", buffering=0) as file:
        try:
            os.posix_fallocate(file.fileno(), 0, max(1, stat.f_bavail * stat.f_frsize - MIB))
        except OSError:
            pass
        file.seek(0, os.SEEK_END)
        for size in (1 << 16, 4096):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                pass
        file.truncate(max(0, file.tell() - leave))
    return path


def walk(s, vm, fs, guaranteed):
    """The round trip; a full disk before and in the middle; and what is said of it."""
    info = pool(s)
    equal((info["fs"], info["guaranteed"], info["state"]), (fs, guaranteed, "ok"), "the pool")
    capacity = s.client.cmd("query-capacity", name=vm.name)
    said = [entry for entry in capacity["pools"] if entry["pool"] == "default"][0]
    equal((said["guaranteed"], said["admitted"]), (guaranteed, True), f"capacity {said}")
    there_and_back(vm)
    others = fill(s.daemon.pool)
    error = refused(s, vm, "InsufficientSpace", "required")
    check(error.data["required"] > error.data["available"], f"data {error.data}")
    os.unlink(others)
    others = fill(s.daemon.pool, leave=128 << 10)
    refused(s, vm, "InsufficientSpace", " ", reserve="none")
    os.unlink(others)
    there_and_back(vm)
    # Once it is hibernated, a full disk keeps nobody from coming back.
    vm.hibernate()
    others = fill(s.daemon.pool)
    vm.restore()
    vm.runs()
    os.unlink(others)
    no_image(s, vm)


def test_on_ext4(s):
    Mounted(s, "ext4")
    walk(s, TinyVm(s).start(), "ext4", True)


def test_on_xfs(s):
    Mounted(s, "xfs")
    walk(s, TinyVm(s).start(), "xfs", True)


def test_on_tmpfs(s):
    use_pool(s, s.tmpfs("tmp", "128m"))
    walk(s, TinyVm(s).start(), "tmpfs", True)


@slow
def test_on_btrfs(s):
    """Its free space is known to itself only: the round trip, and that nothing is promised."""
    Mounted(s, "btrfs")
    vm = TinyVm(s).start()
    info = pool(s)
    equal((info["fs"], info["guaranteed"]), ("btrfs", False), "the pool")
    there_and_back(vm)


def test_like_btrfs(s):
    """fallocate is there and promises nothing."""
    fail = FailCall(s)
    fail.like_btrfs()
    use_pool(s, s.tmpfs("pool", "128m"))
    walk(s, TinyVm(s).start(), "btrfs", False)


def test_like_nfs(s):
    """No fallocate; errors of writes come at the next fsync or close."""
    fail = FailCall(s)
    fail.like_nfs()
    use_pool(s, s.tmpfs("pool", "128m"))
    vm = TinyVm(s).start()
    walk(s, vm, "nfs", False)
    fail.like_nfs()
    for call, part in (("fdatasync", "/memory.zst"), ("fsync", "/memory.zst"),
                       ("fsync", "/.manifest.json.new"), ("close", "/.manifest.json.new")):
        for number in (errno.EIO, errno.ENOSPC, errno.EDQUOT):
            fail.rule(0, call, FAIL, number, part)
            error = s.client.err("vm-hibernate", ("IOError", "InsufficientSpace"), name=vm.name,
                                 wait=True, seconds=60)
            check(fail.hits(), f"no {call} of {part}")
            equal(error.cls, "IOError" if number == errno.EIO else "InsufficientSpace",
                  f"class of {error}")
            equal(settled(vm), "running/ok", "state")
            no_image(s, vm)
    fail.disarm()
    vm.runs()


def test_quota_of_the_file_system(s):
    """EDQUOT is no room as any other: before the guest is touched."""
    fail = FailCall(s)
    vm = TinyVm(s).start()
    fail.rule(0, "fallocate", FAIL, errno.EDQUOT, "/memory.zst")
    refused(s, vm, "InsufficientSpace", "quota")
    check(fail.hits(), "no fallocate")
    fail.rule(0, "pwrite", FAIL, errno.EDQUOT, "/memory.zst", nth=3)
    refused(s, vm, "InsufficientSpace", "quota")
    check(fail.hits(), "no pwrite")
    fail.disarm()
    there_and_back(vm)


@slow
@deadline(150)
def test_read_only_and_away(s):
    """Remounted read-only under the daemon; unmounted and back: refused meanwhile, as before then."""
    disk = Mounted(s, "ext4")
    vm = TinyVm(s).start()
    try:
        disk.remount("ro")
    except Skip:
        pass        # its lock file is open for writing: what is mounted anew is read-only
    else:
        poll(lambda: pool(s)["state"] == "read-only", 70, "pool read-only")
        refused(s, vm, "IOError", "read-only")
        disk.remount("rw")
        poll(lambda: pool(s)["state"] == "ok", 70, "pool ok again")
    there_and_back(vm)
    vm.hibernate()
    disk.away()
    error = s.client.err("vm-restore", "IOError", name=vm.name, wait=True, seconds=60)
    check(s.daemon.pool in error.desc, f"the pool is not named: {error}")
    equal(settled(vm), "hibernated/save", "state")
    disk.mount()
    poll(lambda: pool(s)["state"] == "ok", 70, "pool back")
    one_image(s, vm)
    vm.restore()
    vm.runs()


def quick(call, *arguments, **more):
    """Made within a second, as if nothing were late."""
    began = time.monotonic()
    answer = call(*arguments, **more)
    took = time.monotonic() - began
    check(took < 2, f"{call} took {took:.1f} s")
    return answer


@deadline(150)
def test_late_syncs(s):
    """A sync of the pool that takes 5 s: all else answers at once, nobody is killed, it succeeds."""
    fail = FailCall(s)
    other = TinyVm(s, "other").start()
    vm = TinyVm(s).start()
    for call, part in (("fsync", "/memory.zst"), ("fsync", "/.manifest.json.new")):
        fail.rule(0, call, DELAY, 5000, part)
        began = time.monotonic()
        operation = vm.cmd("vm-hibernate")["operation"]
        poll(fail.hits, 20, f"{call} of {part}")
        while time.monotonic() - began < 4.5:
            quick(other.runs)
            quick(vm.cmd, "query-vm")
            time.sleep(0.2)
        s.client.cmd("operation-wait", id=operation, timeout=60, seconds=70)
        check(time.monotonic() - began >= 5, "nothing was late")
        equal(s.client.cmd("query-operation", id=operation)["status"], "succeeded", "operation")
        vm.expect("hibernated/save")
        vm.restore()
        vm.runs()


HANGS = (("fsync", "/slow/", False), ("open", "/slow/", False), ("fstatvfs", "/slow", False),
         ("unlink", "/slow/", True))


def hang(s, call, part, restore):
    """One pool hangs in that call; a VM in another pool hibernates and comes back; the daemon ends."""
    fail = FailCall(s)
    slow_pool = s.path("slow")
    s.daemon.pools["slow"] = slow_pool
    vm = TinyVm(s, pool="slow").start()
    other = TinyVm(s, "other").start()
    if restore:
        vm.hibernate()
    fail.rule(0, call, HANG, 0, part)
    vm.cmd("vm-restore" if restore else "vm-hibernate")
    try:
        poll(fail.hits, 20, f"{call} of {part}")
        quick(vm.cmd, "query-vm")
        quick(s.client.cmd, "query-pools")
        quick(s.client.cmd, "query-images")
        there_and_back(other)
        other.runs()
        began = time.monotonic()
        s.daemon.stop()
        took = time.monotonic() - began
        check(took < 35, f"the daemon took {took:.0f} s to end")
        print(f"hang in {call}: ended in {took:.1f} s")
    finally:
        fail.disarm()
    s.daemon.start()
    check(settled(vm) in ("running/ok", "hibernated/save"), f"state {vm.state()}")
    if vm.state() == "hibernated/save":
        vm.restore()
    vm.runs()


@deadline(150)
def test_hanging_sync(s):
    hang(s, *HANGS[0])


@slow
@deadline(150)
def test_hanging_open(s):
    hang(s, *HANGS[1])


@slow
@deadline(150)
def test_hanging_statvfs(s):
    hang(s, *HANGS[2])


@slow
@deadline(150)
def test_hanging_unlink(s):
    hang(s, *HANGS[3])
