# SPDX-License-Identifier: LGPL-2.1-or-later
"""tests/fault in torpord and its movers: file calls that fail, come late or hang; a log of them."""

import mmap
import os
import struct
import subprocess

from .base import TOP, Failure, check

# struct rule of failcall.c
RULE = struct.Struct("<IiIIqI28s192s256s")
RULES = 8
ARMED_AT, HITS_AT = 0, 24
FAIL, DELAY, HANG, SHORT, ANSWER = 1, 2, 3, 4, 5
# struct log of record.c
LOG_SIZE = 64 << 20
LOG_DATA = 4096
LOG_USED = 8
LOG_ROOTS = 16
ROOT_SIZE = 256

BOTH = "/state/|/pool/"


def build(s):
    """The preloaded library, made once for a run."""
    path = os.path.join(s.shared, "faultlib.so")
    if not os.path.exists(path):
        mine = f"{path}.{os.getpid()}"
        folder = os.path.join(TOP, "tests", "fault")
        sources = [os.path.join(folder, name) for name in sorted(os.listdir(folder))
                   if name.endswith(".c")]
        done = subprocess.run(["cc", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-shared",
                               "-fPIC", "-O1", "-o", mine, *sources, "-ldl"],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failure(f"tests/fault: {done.stderr}")
        os.rename(mine, path)
    return path


def _map(path, size):
    with open(path, "w+b") as file:
        file.truncate(size)
        return mmap.mmap(file.fileno(), size)


def preload(s, **environment):
    """For the scenario's daemons that start from now on."""
    s.daemon.env.update({
        "LD_PRELOAD": build(s), "FAULT_CHILDREN": "1",
        "ASAN_OPTIONS": "detect_leaks=1:exitcode=77:verify_asan_link_order=0", **environment,
    })


class FailCall:
    """Arms rules in torpord and its movers; to be made before torpord starts."""

    def __init__(self, s):
        path = s.path("failcall")
        self.map = _map(path, RULE.size * RULES)
        preload(s, FAILCALL=path)

    def rule(self, slot, call, action, value, part, nth=1, times=1):
        """The nth `call` from now on, and as many in a row as `times` (0: all) on a path with one
        of the parts ("a|b"); call "*" is any that changes something."""
        at = slot * RULE.size
        self._disarm(slot)
        self.map[at:at + RULE.size] = RULE.pack(0, nth, times, action, value, 0, call.encode(),
                                                part.encode(), b"")
        struct.pack_into("<I", self.map, at + ARMED_AT, 1)

    def arm(self, call, nth, error, part):
        self.rule(0, call, FAIL, error, part, nth)

    def _disarm(self, slot):
        struct.pack_into("<I", self.map, slot * RULE.size + ARMED_AT, 0)

    def hits(self, slot=0):
        return struct.unpack_from("<I", self.map, slot * RULE.size + HITS_AT)[0]

    def hit(self, slot=0):
        """Call and path of the last one; None: it never struck."""
        if not self.hits(slot):
            return None
        text = RULE.unpack_from(self.map, slot * RULE.size)[8]
        return text.split(b"\0", 1)[0].decode()

    def disarm(self):
        """All rules; whether the first one struck."""
        for slot in range(RULES):
            self._disarm(slot)
        return self.hits() > 0

    def like_nfs(self, part="/pool/"):
        """No fallocate, and the type of the file system; late errors are for arm("close", ...)."""
        self.rule(6, "fallocate", FAIL, 95, part, times=0)
        self.rule(7, "fstatfs", ANSWER, 0x6969, part.rstrip("/"), times=0)

    def like_btrfs(self, part="/pool"):
        """fallocate succeeds and promises nothing."""
        self.rule(7, "fstatfs", ANSWER, 0x9123683e, part, times=0)


class Recording:
    """The log of all calls of torpord and its movers in the state folder and the pool."""

    def __init__(self, s):
        path = s.path("record")
        self.map = _map(path, LOG_SIZE)
        for index, root in enumerate((s.daemon.state, s.daemon.pool)):
            at = LOG_ROOTS + index * ROOT_SIZE
            self.map[at:at + len(root)] = root.encode()
        boot = s.path("boot-id")
        with open(boot, "w", encoding="ascii") as file:
            file.write("11111111-2222-3333-4444-555555555555\n")
        preload(s, RECORD=path, FAULT_BOOT_ID=boot)

    def used(self):
        """Where the log ends now."""
        return struct.unpack_from("<Q", self.map, LOG_USED)[0]

    def calls(self):
        """[(bytes in the log, (call, at, data, path, other))] in their order."""
        check(struct.unpack_from("<I", self.map, 4)[0] == 0, "the recorder's log is full")
        found, at, end = [], LOG_DATA, LOG_DATA + self.used()
        while at < end:
            line_end = self.map.find(b"\n", at)
            call, offset, size, names = self.map[at:line_end].decode().split(" ", 3)
            path, other = names.split("\t")
            data = self.map[line_end + 1:line_end + 1 + int(size)]
            length = line_end + 1 + int(size) - at
            at += length
            found.append((length, (call, int(offset), data, path, other)))
        return found
