# SPDX-License-Identifier: LGPL-2.1-or-later
"""Lazy restore of a QEMU that is another user: its rights, what is told of them, the device handed over."""

import ctypes
import os
import pwd
import subprocess

from lib.base import Skip, check, equal, matches, poll
from lib.guest import guest_file

CLONE_NEWNS = 0x20000
DEVICE = "/dev/userfaultfd"
USER = "nobody"


def user_finds(*words):
    """What test(1) says to that user."""
    return subprocess.run(["setpriv", f"--reuid={USER}", "--clear-groups", "test", *words],
                          check=False).returncode == 0


def need_a_reason():
    """A user who may run QEMU here, but may not use userfaultfd."""
    if not os.path.exists(DEVICE):
        raise Skip(f"no {DEVICE}")
    with open("/proc/sys/vm/unprivileged_userfaultfd", encoding="ascii") as file:
        if file.read().strip() == "1" or user_finds("-r", DEVICE, "-a", "-w", DEVICE):
            raise Skip(f"{USER} may use userfaultfd anyway")
    if not user_finds("-r", guest_file("vmlinuz")):
        raise Skip(f"{USER} cannot read the guest's kernel")


def own_mounts(propagation):
    """Puts this process, and the daemon that it starts, into a mount namespace with such mounts."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise Skip(f"no mount namespace: {os.strerror(ctypes.get_errno())}")
    subprocess.run(["mount", f"--make-r{propagation}", "/"], check=True)


def boot_as_user(s):
    """A VM whose QEMU is that user, who may do no more here than it must."""
    vm = s.vm()
    os.chmod(s.dir, 0o711)
    os.makedirs(s.daemon.run, exist_ok=True)
    os.chmod(s.daemon.run, 0o711)
    uid = pwd.getpwnam(USER).pw_uid
    os.chown(vm.disk, uid, -1)
    with open(vm.log_path, "w", encoding="ascii"):
        os.chown(vm.log_path, uid, -1)
    vm.spec["launch"]["user"] = USER
    vm.spec["restore"] = {"mode": "lazy"}
    vm.boot()
    return vm


def qemu_pid(vm):
    return vm.info()["pid"]


def node():
    st = os.stat(DEVICE)
    return st.st_mode, st.st_uid, st.st_gid, st.st_ino, st.st_dev, st.st_ctime_ns


def test_device_is_handed_over(s):
    """First where the mounts are private, and nothing is handed over; then where they are shared."""
    need_a_reason()
    own_mounts("private")
    vm = boot_as_user(s)
    vm.fill(32, "mixed")
    before = node()
    told = s.client.cmd("query-capacity", name="vm")["restore"]["lazy"]
    wanted = ("set vm.unprivileged_userfaultfd=1 .QEMU 7.2 knows only the system call" if vm.version == "7.2" else
              f'set vm.unprivileged_userfaultfd=1, or give user "{USER}" access to {DEVICE}$')
    equal(told["possible"], False)
    matches(told["why"], f'user "{USER}" may not use userfaultfd: {wanted}')
    vm.hibernate()
    restore = s.client.cmd("query-capacity", name="vm")["restore"]
    equal((restore["mode"], restore["why"]), ("eager", told["why"]))
    dry = s.client.cmd("vm-restore", name="vm", dry_run=True)
    check(dry["estimate"]["mode"] == "eager" and told["why"] in dry["warnings"][0], dry)
    record = vm.restore()
    equal(record["result"]["mode"], "eager")
    check(any(told["why"] in text for text in record["warnings"]), record["warnings"])

    subprocess.run(["mount", "--make-rshared", "/"], check=True)
    told = s.client.cmd("query-capacity", name="vm")["restore"]["lazy"]
    if vm.version == "7.2":
        equal(told["possible"], False)
        return
    equal(told["possible"], True)
    vm.hibernate()
    ticks = vm.last_tick()
    equal(s.client.cmd("query-capacity", name="vm")["restore"]["mode"], "lazy")
    record = vm.restore(bandwidth=16 << 20)
    equal((record["result"]["mode"], record["warnings"]), ("lazy", []))
    equal(node(), before)
    pid = qemu_pid(vm)
    theirs = os.stat(f"/proc/{pid}/root{DEVICE}")
    equal((theirs.st_uid, theirs.st_mode & 0o777), (pwd.getpwnam(USER).pw_uid, 0o600))
    later = s.tmpfs("later", "1M")
    equal(os.stat(f"/proc/{pid}/root{later}").st_dev, os.stat(later).st_dev)
    vm.went_on(ticks)
    poll(lambda: vm.info()["prefetch"] is None, 60, "all memory to be in")
    vm.verify()
