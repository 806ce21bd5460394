# SPDX-License-Identifier: LGPL-2.1-or-later
"""Disks that are not as the saved memory knows them: which, how, and what is none of it."""

import os
import shutil
import subprocess

from lib import Skip, check, equal, matches, version
from lib.base import qemu_program


def tool(vm, program, *args):
    subprocess.run([qemu_program(vm.version, program), *args], check=True,
                   stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


def qemu_img(vm, *args):
    tool(vm, "qemu-img", *args)


def found(s):
    """What a restore would say: (how, disk's member of data.disks), or (None, None)."""
    plan = s.client.cmd("vm-restore", name="vm", dry_run=True)
    stale = [blocker for blocker in plan["blockers"] if blocker["class"] == "StaleState"]
    if not stale:
        check(plan["ok"], plan["blockers"])
        return None, None
    disk, = stale[0]["data"]["disks"]
    check(disk["detail"] in stale[0]["desc"], stale[0]["desc"])
    return disk["how"], disk


def expect(s, how, path, part=None):
    is_, disk = found(s)
    equal(is_, how, path)
    equal((disk["disk"], disk["file"]), ("disk0", path))
    equal(disk.get("part", {}).get("how"), part, disk)
    check(disk["detail"], disk)


class Backup:
    """A disk as it was; put back into the same file, it is as it was."""

    def __init__(self, path):
        self.path = path
        self.copy = path + ".backup"
        shutil.copyfile(path, self.copy)
        self.stat = os.stat(path)

    def put_back(self):
        shutil.copyfile(self.copy, self.path)
        os.utime(self.path, ns=(self.stat.st_atime_ns, self.stat.st_mtime_ns))


@version
def test_each_change_has_its_word(s):
    """One saved guest, its disk changed in one way after the other; at last it goes on."""
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    backup = Backup(vm.disk)
    equal(found(s)[0], None, "after the disk was copied")
    changes = [
        ("written", lambda: s.qemu_io(vm, "write -P 0x5a 100M 64k")),
        ("snapshotted", lambda: qemu_img(vm, "snapshot", "-c", "s1", vm.disk)),
        ("resized", lambda: qemu_img(vm, "resize", "-q", vm.disk, "+64M")),
        ("bitmap", lambda: qemu_img(vm, "bitmap", "--add", vm.disk, "b1")),
        ("rebased", lambda: qemu_img(vm, "rebase", "-u", "-b", backup.copy, "-F", "qcow2",
                                     vm.disk)),
        ("written", lambda: os.truncate(vm.disk, 60)),
    ]
    for how, change in changes:
        change()
        expect(s, how, vm.disk)
        backup.put_back()
        equal(found(s)[0], None, f"after \"{how}\" was taken back")
    away = vm.disk + ".away"
    os.rename(vm.disk, away)
    expect(s, "missing", vm.disk)
    shutil.copy2(away, vm.disk)
    expect(s, "replaced", vm.disk)
    os.rename(away, vm.disk)
    # What leaves the content as it was.
    qemu_img(vm, "info", vm.disk)
    qemu_img(vm, "check", "-q", vm.disk)
    os.chmod(vm.disk, 0o640)
    os.link(vm.disk, away)
    os.utime(vm.disk, ns=(1, backup.stat.st_mtime_ns))
    equal(found(s)[0], None, "after reading, chmod and a hard link")
    record = vm.restore()
    equal(record["warnings"], [])
    vm.went_on(before)


def test_change_in_the_chain_and_allowed(s):
    vm = s.vm()
    base, mid = vm.disk + ".base", vm.disk + ".mid"
    os.rename(vm.disk, base)
    qemu_img(vm, "create", "-q", "-f", "qcow2", "-b", base, "-F", "qcow2", mid)
    qemu_img(vm, "create", "-q", "-f", "qcow2", "-b", mid, "-F", "qcow2", vm.disk)
    vm.define()     # boot() would put its own disk there
    vm.start()
    vm.ready()
    before = vm.tick()
    vm.hibernate()
    equal(found(s)[0], None)
    tool(vm, "qemu-io", "-f", "qcow2", "-c", "write -P 0x5a 100M 64k", base)
    expect(s, "chain", vm.disk, part="written")
    equal(found(s)[1]["part"]["file"], base)
    error = s.client.err("vm-restore", "StaleState", name="vm", wait=True)
    equal(error.data["disks"][0]["how"], "chain")
    vm.expect("hibernated/save")
    record = vm.restore(allow=["stale-disks"])
    warning, = record["warnings"]
    matches(warning, f"^disk disk0 .*backing file {base} changed: written since.*allowed$")
    vm.went_on(before)
    kept, = [op for op in s.client.cmd("query-operations", vm="vm") if op["id"] == record["id"]]
    equal(kept["warnings"], [warning], "the record")


class Loop:
    """A loop device upon a file; detached at the end."""

    def __init__(self, s, path):
        self.path = path
        self.device = None
        self.attach(path)
        s.at_end(self.detach)

    def attach(self, path):
        command = ["losetup", "--show", self.device or "-f", path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Skip(f"loop devices cannot be used here: {done.stderr.strip()}")
        self.device = done.stdout.strip()

    def detach(self):
        subprocess.run(["losetup", "-d", self.device], check=False, stderr=subprocess.DEVNULL)


def test_block_device(s):
    """A qcow2 image on a block device: attached again it is the same, as another it is not."""
    vm = s.vm()
    backing = vm.disk + ".dev"
    shutil.copyfile(vm.disk, backing)
    os.truncate(backing, os.path.getsize(backing) + (64 << 20) & ~4095)
    other = backing + ".other"
    loop = Loop(s, backing)
    vm.spec["launch"]["disks"]["disk0"]["file"] = loop.device
    vm.boot()
    before = vm.tick()
    vm.hibernate()
    equal(found(s)[0], None)
    shutil.copyfile(backing, other)
    loop.detach()
    loop.attach(other)
    expect(s, "device", loop.device)
    loop.detach()
    with open(backing, "r+b") as file:
        file.seek(-4096, os.SEEK_END)
        kept, stat = file.read(1), os.stat(backing)
        file.seek(-4096, os.SEEK_END)
        file.write(b"x")
    loop.attach(backing)
    expect(s, "written", loop.device)
    loop.detach()
    with open(backing, "r+b") as file:
        file.seek(-4096, os.SEEK_END)
        file.write(kept)
    os.utime(backing, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    loop.attach(backing)
    equal(found(s)[0], None, "as it was, attached again")
    record = vm.restore()
    equal(record["warnings"], [])
    vm.went_on(before)


def test_replaced_under_a_running_guest(s):
    """What QEMU has open is no longer what the name leads to: the guest would meet another disk."""
    vm = s.boot()
    away = vm.disk + ".away"
    os.rename(vm.disk, away)
    error = s.client.err("vm-hibernate", ("InvalidState", "IOError"), name="vm", wait=True)
    check("disk0" in error.desc, error.desc)
    vm.expect("running/ok")
    shutil.copy2(away, vm.disk)
    error = s.client.err("vm-hibernate", "InvalidState", name="vm", wait=True)
    matches(error.desc, "disk0.*is not the file that QEMU has open")
    vm.expect("running/ok")
    before = vm.tick()
    equal(vm.images(), [])
    os.rename(away, vm.disk)
    vm.hibernate()
    vm.restore()
    vm.went_on(before)


def firmware(qemu):
    """QEMU's own BIOS, which NVRAM must have above it."""
    top = os.path.dirname(qemu_program(qemu))
    found_ = [os.path.join(folder, "bios-256k.bin") for folder, _, names in os.walk(top)
              if "bios-256k.bin" in names and os.path.exists(os.path.join(folder, "bios-256k.bin"))]
    if not found_:
        raise Skip("no bios-256k.bin beside QEMU")
    return found_[0]


def test_what_cannot_be_verified_is_said(s):
    """A disk elsewhere (here: of QEMU's own making), and NVRAM: warnings, never a refusal."""
    nvram, bios = s.path("nvram.fd"), firmware(s.qemu)
    vm = s.vm(extra=["-blockdev", "driver=null-co,node-name=far,size=1048576,read-zeroes=on",
                     "-device", "virtio-blk-pci,drive=far",
                     "-drive", f"if=pflash,unit=0,format=raw,readonly=on,file={bios}",
                     "-drive", f"if=pflash,unit=1,format=raw,file={nvram}"])
    with open(nvram, "wb") as file:
        file.truncate(1 << 18)
    vm.boot()
    before = vm.tick()
    warning, = vm.hibernate()["warnings"]
    matches(warning, "^disk far .*will not be seen")
    record = s.client.cmd("vm-restore", name="vm", dry_run=True)
    equal((record["ok"], len(record["warnings"])), (True, 1), record)
    matches(record["warnings"][0], "^disk far .*cannot be verified")
    with open(nvram, "r+b") as file:
        file.write(b"changed")
    warnings = sorted(vm.restore()["warnings"])
    equal(len(warnings), 2, warnings)
    matches(warnings[0], "^NVRAM .*nvram.fd. was changed since")
    matches(warnings[1], "^disk far .*cannot be verified")
    vm.went_on(before)
