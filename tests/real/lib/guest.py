# SPDX-License-Identifier: LGPL-2.1-or-later
"""A VM of torpord with the test guest inside.

The guest's console goes to a file as well as to a socket: the file is what is read, so that nothing
is missed while nobody is connected; whoever is connected only drains the socket.
"""

import copy
import os
import re
import shutil
import socket
import subprocess
import threading
import time

from . import golden
from .base import BUILD, Failure, POLL_SECONDS, Skip, poll, qemu_program

TICK = re.compile(r"TICK n=(\d+) nonce=([0-9a-f]{16}) up=")


class Console(threading.Thread):
    """Keeps a console socket drained; sends lines."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(path)
        self.open = True
        self.start()

    def run(self):
        while True:
            try:
                data = self.sock.recv(65536)
            except OSError:
                data = b""
            if not data:
                self.open = False
                self.sock.close()
                return

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.join(5)


def guest_file(name):
    path = os.path.join(BUILD, "guest", name)
    if not os.path.exists(path):
        raise Skip(f"{path} is not there: tests/guest/build-guest makes it")
    return path


def make_disk(path, version, template_dir):
    """A qcow2 disk for the guest at path; converted once for a run, then copied sparsely."""
    template = os.path.join(template_dir, f"disk-{version}.qcow2")
    if not os.path.exists(template):
        mine = f"{template}.{os.getpid()}"
        subprocess.run([qemu_program(version, "qemu-img"), "convert", "-f", "raw", "-O", "qcow2",
                        guest_file("disk-template.raw"), mine], check=True)
        os.rename(mine, template)
    shutil.copyfile(template, path)


class Vm:
    """Made by Scenario.vm(); `spec` may be changed before define()."""

    def __init__(self, scenario, name, machine=None, memory="256M", append="", extra=(), disk=True,
                 agent=True, qemu=None):
        self.s = scenario
        self.name = name
        self.version = qemu or scenario.qemu
        self.nonce = None
        self.console = None
        self.run_dir = os.path.join(scenario.daemon.run, name)
        self.log_path = os.path.join(scenario.dir, f"{name}.console")
        self.disk = os.path.join(scenario.dir, f"{name}.qcow2") if disk else None
        if self.disk:
            make_disk(self.disk, self.version, scenario.shared)
        self.kind = {"machine": machine or scenario.machine, "memory": memory, "disk": disk,
                     "agent": agent}
        self.spec = self._spec(self.kind["machine"], memory, append, extra, agent)
        # What a copy of a golden guest must have.
        self.common = None if append or extra else copy.deepcopy(self.spec["launch"])

    def _spec(self, machine, memory, append, extra, agent):
        with open(guest_file("cmdline"), encoding="ascii") as file:
            cmdline = file.read().strip()
        args = [
            "-nodefaults", "-no-user-config", "-display", "none", "-machine", machine,
            "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", memory,
            "-kernel", guest_file("vmlinuz"), "-initrd", guest_file("initrd.img"),
            "-append", f"{cmdline} {append}".strip(),
            "-chardev", "socket,id=con,path={run-dir}/con,server=on,wait=off,logfile="
                        f"{self.log_path},logappend=on",
            "-serial", "chardev:con", "-device", "pvpanic-pci", "-device", "vmgenid,guid=auto",
        ]
        launch = {"binary": qemu_program(self.version), "args": args}
        if self.disk:
            args += ["-device", "virtio-blk-pci,drive=disk0"]
            launch["disks"] = {"disk0": {"file": self.disk, "format": "qcow2"}}
        if agent:
            launch["agent"] = "auto"
        args += extra
        return {"launch": launch}

    # --- torpord ---

    def _cmd(self, verb, **arguments):
        return self.s.client.cmd(verb, name=self.name, **arguments)

    def _op(self, verb, arguments):
        arguments.setdefault("wait", True)
        return self._cmd(verb, seconds=120, **arguments)

    def define(self, **arguments):
        return self._cmd("vm-define", spec=copy.deepcopy(self.spec), **arguments)

    def info(self):
        return self._cmd("query-vm")

    def state(self):
        """"state/reason", as in "hibernated/save"."""
        info = self.info()
        return f"{info['state']}/{info['reason']}"

    def wait_state(self, state, seconds=20):
        """Waits for "state" or "state/reason"."""
        seen = [None]

        def there():
            seen[0] = self.state()
            return seen[0] == state or seen[0].split("/")[0] == state

        try:
            poll(there, seconds)
        except Failure:
            raise Failure(f"VM {self.name} is {seen[0]}, not {state}, after {seconds} s") from None

    def expect(self, state):
        is_ = self.state()
        if is_ != state and is_.split("/")[0] != state:
            raise Failure(f"VM {self.name} is {is_}, not {state}")

    def start(self, **arguments):
        return self._op("vm-start", arguments)

    def hibernate(self, **arguments):
        return self._op("vm-hibernate", arguments)

    def restore(self, **arguments):
        return self._op("vm-restore", arguments)

    def powerdown(self, **arguments):
        return self._op("vm-powerdown", arguments)

    def quit(self):
        return self._cmd("vm-quit")

    def pause(self):
        return self._cmd("vm-pause")

    def resume(self):
        return self._cmd("vm-resume")

    def monitor(self, execute, **arguments):
        return self._cmd("vm-monitor", execute=execute, arguments=arguments)

    def boot(self, **arguments):
        """Defines, starts, waits until the guest is ready; booted aside if it can be (golden.py)."""
        copied = self.spec["launch"] == self.common
        if copied:
            golden.arrange(self.s, self)
        self.define()
        self.start(**arguments)
        if copied:
            self.nonce = golden.christen(self)
            return self.nonce
        return self.ready()

    def images(self):
        return self.s.client.cmd("query-images", vm=self.name)

    def image_file(self):
        """The file of the only image of this VM."""
        images = self.images()
        if len(images) != 1:
            raise Failure(f"VM {self.name} has {len(images)} images, not 1")
        pool = self.s.daemon.pools[images[0]["pool"]]
        return os.path.join(pool, self.name, images[0]["id"], "memory.zst")

    # --- the guest's console ---

    def mark(self):
        """A place in the console's log: what comes after it is new."""
        try:
            return os.path.getsize(self.log_path)
        except FileNotFoundError:
            return 0

    def _text(self, mark):
        try:
            with open(self.log_path, "rb") as file:
                file.seek(mark)
                return file.read().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def line(self, pattern, seconds=60, mark=None):
        """The match of the first whole console line after mark (default: now) that matches."""
        mark = self.mark() if mark is None else mark
        regex = re.compile(rf"(?:{pattern})")
        end = time.monotonic() + seconds
        while True:
            text = self._text(mark)
            for line in text[:text.rfind("\n") + 1].split("\n"):
                found = regex.search(line.rstrip("\r"))
                if found:
                    return found
            if time.monotonic() > end:
                raise Failure(f"VM {self.name}: no console line matched {pattern!r} within "
                              f"{seconds} s; the last were {text[-300:]!r}")
            time.sleep(POLL_SECONDS)

    def ready(self, mark=0, seconds=100):
        """Waits for the guest after a boot; returns and keeps its nonce."""
        last = mark
        self.line(r"^READY nonce=", seconds, mark)
        for found in re.finditer(r"READY nonce=([0-9a-f]{16})", self._text(last)):
            self.nonce = found.group(1)
        return self.nonce

    def tick(self, seconds=30):
        """The counter of the next tick from now on; fails if another guest ticks."""
        found = self.line(TICK.pattern, seconds)
        if self.nonce and found.group(2) != self.nonce:
            raise Failure(f"VM {self.name} was booted anew: nonce {found.group(2)}, was "
                          f"{self.nonce}")
        return int(found.group(1))

    def last_tick(self):
        """The counter of the last tick so far."""
        found = TICK.findall(self._text(max(0, self.mark() - 4096)))
        return int(found[-1][0]) if found else None

    def silent(self, seconds=0.4):
        """Fails if the guest ticks within this time (it ticks each 100 ms)."""
        mark = self.mark()
        try:
            self.line(TICK.pattern, seconds, mark)
        except Failure:
            return
        raise Failure(f"VM {self.name} runs")

    def went_on(self, before, most=600):
        """Fails unless the counter went on from `before` without a boot; returns it."""
        now = self.tick()
        if not before < now <= before + most:
            raise Failure(f"VM {self.name}: counter {before} before, {now} after")
        return now

    def send(self, text):
        if self.console is None or not self.console.open:
            self.console = Console(os.path.join(self.run_dir, "con"))
        self.console.sock.sendall(text.encode() + b"\n")

    def ask(self, command, seconds=60, ok=True):
        """The answer to a console command, without "OK <command>"."""
        mark = self.mark()
        self.send(command)
        word = command.split()[0]
        found = self.line(rf"^(OK|ERR) {re.escape(word)}\b ?(.*)", seconds, mark)
        if ok and found.group(1) != "OK":
            raise Failure(f"VM {self.name}: {command!r}: {found.group(0)}")
        return found.group(2)

    def fill(self, mib=32, kind="random"):
        """Fills guest memory; the checksum."""
        return re.search(r"sum=(\w+)", self.ask(f"fill {mib} {kind}")).group(1)

    def verify(self, sum_=None):
        """Fails if what was filled is not as it was."""
        found = re.search(r"sum=(\w+) expected=(\w+) ok", self.ask("verify"))
        if not found or found.group(1) != found.group(2) or (sum_ and found.group(1) != sum_):
            raise Failure(f"VM {self.name}: memory differs: {found and found.group(0)}")

    def close(self):
        if self.console is not None:
            self.console.close()
            self.console = None
