# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a hibernation leaves of other files in the page cache.

torpord, its mover and QEMU run in a memory cgroup whose limit is so close that the image has no
room in the page cache beside the probe: a file of 1 GiB that was read once just before. What of
it is there afterwards is counted by mincore(2). The restore that follows is measured in the same
way.
"""

import ctypes
import mmap
import os
import time

from benchlib import MIB, proc_status

PROBE_MIB = 1024
HEADROOM_MIB = 96			# above what is used just before
UNLIMITED = 1 << 60
REMOVE_SECONDS = 10
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
LIBC.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
                      ctypes.c_long)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


class Cgroup:
    """A memory cgroup of our own, version 2 or 1; None from make() if there can be none."""

    TREES = (("/sys/fs/cgroup/unified", "memory.max", "memory.current"),
             ("/sys/fs/cgroup", "memory.max", "memory.current"),
             ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"))

    def __init__(self, folder, limit, usage):
        self.folder, self.limit_file, self.usage_file = folder, limit, usage

    @classmethod
    def make(cls):
        for top, limit, usage in cls.TREES:
            folder = os.path.join(top, f"torpor-bench.{os.getpid()}")
            try:
                os.mkdir(folder)
            except OSError:
                continue
            if os.path.exists(os.path.join(folder, limit)):
                return cls(folder, limit, usage)
            os.rmdir(folder)
        return None

    def path(self, name):
        return os.path.join(self.folder, name)

    def add(self, pid):
        with open(self.path("cgroup.procs"), "w", encoding="ascii") as file:
            file.write(str(pid))

    def usage(self):
        with open(self.path(self.usage_file), encoding="ascii") as file:
            return int(file.read())

    def limit(self, size):
        with open(self.path(self.limit_file), "w", encoding="ascii") as file:
            file.write(str(size))

    def remove(self):
        """Its processes are about to be gone."""
        deadline = time.monotonic() + REMOVE_SECONDS
        while os.path.isdir(self.folder):
            try:
                os.rmdir(self.folder)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)


def resident(path):
    """The part of a file that is in the page cache."""
    size = os.path.getsize(path)
    if size == 0:
        return 1.0
    fd = os.open(path, os.O_RDWR)
    try:
        at = LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        if at in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), "mmap")
        pages = (size + mmap.PAGESIZE - 1) // mmap.PAGESIZE
        seen = (ctypes.c_ubyte * pages)()
        if LIBC.mincore(at, size, seen):
            raise OSError(ctypes.get_errno(), "mincore")
        LIBC.munmap(at, size)
    finally:
        os.close(fd)
    return bytes(page & 1 for page in seen).count(1) / pages


def write_probe(path):
    block = os.urandom(MIB)
    with open(path, "wb") as file:
        for _ in range(PROBE_MIB):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_in(cgroup, path):
    """By a child in the cgroup, so that the pages count there."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            cgroup.add(os.getpid())
            with open(path, "rb", buffering=0) as file:
                buffer = bytearray(MIB)
                while file.readinto(buffer):
                    pass
            status = 0
        finally:
            os._exit(status)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("the probe could not be read in the cgroup")


def measure(torpor, cgroup, folder, say):
    """One hibernation and one restore; the guest runs, with QEMU and torpord in the cgroup."""
    probe = os.path.join(folder, "probe")
    write_probe(probe)
    guest = proc_status(torpor.query()["pid"])["VmRSS"]
    figures = {}
    # The memory that the guest comes back to is no matter of caches: there is room for it.
    for job, run, room in (("hibernate", torpor.hibernate, 0),
                           ("restore", torpor.restore_cold, guest)):
        say(f"page cache: {job}")
        cgroup.limit(UNLIMITED)
        read_in(cgroup, probe)
        before = resident(probe)
        cgroup.limit(cgroup.usage() + room + HEADROOM_MIB * MIB)
        whole = run()["whole"]
        figures[job] = {"before": before, "after": resident(probe), "seconds": whole}
        if job == "hibernate":
            figures["image"] = {"bytes": os.path.getsize(torpor.image),
                                "resident": resident(torpor.image)}
    cgroup.limit(UNLIMITED)
    os.unlink(probe)
    return figures
