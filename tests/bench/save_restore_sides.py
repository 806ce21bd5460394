# SPDX-License-Identifier: LGPL-2.1-or-later
"""The two sides of save-restore: a guest kept by torpor, and the same guest kept by stock QEMU."""

import datetime
import os
import re
import shutil
import subprocess
import time

import benchlib
import guestvm

VM = "bench"
SETTLE_TICKS = 10			# the guest prints one each 100 ms
STATUS_SECONDS = 0.002			# between two query-status of an incoming stock QEMU


# ---------------------------------------------------------------- the guest

def console_line(console, pattern, seconds):
    deadline = time.monotonic() + seconds
    while True:
        line = console.next(deadline)
        if line is None:
            raise ConnectionError(f"the guest's console closed, waiting for {pattern}")
        if line.startswith("ERR"):
            raise RuntimeError(f"the guest says: {line}")
        if re.match(pattern, line):
            return line


def ask(path, command, seconds=300):
    console = benchlib.connect_console(path)
    try:
        console.send(command)
        return console_line(console, f"OK {command.split()[0]}", seconds)
    finally:
        benchlib.close_console(console)


def settle(path):
    """The guest has run for a moment after a restore, and is seen to run."""
    console = benchlib.connect_console(path)
    try:
        for _ in range(SETTLE_TICKS):
            console_line(console, "TICK", 60)
    finally:
        benchlib.close_console(console)


# ---------------------------------------------------------------- torpor's side

class Torpor:
    FILLED = 0.5			# of its RAM

    def __init__(self, daemon, options, vm=VM):
        self.daemon = daemon
        self.vm = vm
        self.ram_mib = options.ram_mib
        self.version = options.qemu
        self.disk = os.path.join(daemon.folder, f"{vm}.qcow2")
        self.console = os.path.join(daemon.runtime, vm, "guest.sock")
        self.client = benchlib.Client(daemon.socket)
        self.argv = []
        self.image = None

    def spec(self):
        guest = os.path.join(guestvm.BUILD, "guest")
        with open(os.path.join(guest, "cmdline"), encoding="ascii") as file:
            cmdline = file.read().strip()
        return {"launch": {
            "binary": guestvm.qemu_program(self.version),
            "args": ["-nodefaults", "-no-user-config", "-machine", "q35", "-accel", "tcg",
                     "-cpu", "max", "-smp", "1", "-m", f"{self.ram_mib}M",
                     "-kernel", os.path.join(guest, "vmlinuz"),
                     "-initrd", os.path.join(guest, "initrd.img"), "-append", cmdline,
                     "-device", "virtio-blk-pci,drive=disk0",
                     "-chardev", "socket,id=con,path={run-dir}/guest.sock,server=on,wait=off",
                     "-serial", "chardev:con"],
            "disks": {"disk0": {"file": self.disk, "format": "qcow2"}}, "agent": "auto"}}

    def query(self):
        return self.client.command("query-vm", name=self.vm)

    def boot(self):
        guest = os.path.join(guestvm.BUILD, "guest")
        subprocess.run([guestvm.qemu_program(self.version, "qemu-img"), "convert", "-f", "raw",
                        "-O", "qcow2", os.path.join(guest, "disk-template.raw"), self.disk],
                       check=True)
        self.client.command("vm-define", name=self.vm, spec=self.spec())
        self.client.command("vm-start", name=self.vm, wait=True)
        console = benchlib.connect_console(self.console)
        try:
            console_line(console, "TICK", 120)
        finally:
            benchlib.close_console(console)

    def prepare(self):
        """Boots and fills the guest; returns the daemon's memory with this one VM."""
        self.boot()
        ask(self.console, f"fill {int(self.ram_mib * self.FILLED)} mixed 1")
        with open(f"/proc/{self.query()['pid']}/cmdline", encoding="utf-8") as file:
            self.argv = file.read().split("\0")[:-1]
        return self.memory()

    def memory(self):
        return benchlib.proc_status(self.daemon.process.pid)

    def hibernate(self):
        os.sync()
        cpu, start = benchlib.busy_seconds(), time.monotonic()
        record = self.client.command("vm-hibernate", name=self.vm, methods=["save"], wait=True)
        end, cpu = time.monotonic(), benchlib.busy_seconds() - cpu
        self.image = self.daemon.image(self.vm, record["result"]["image"])
        figures = {"whole": end - start, "cpu": cpu, "pause": record["result"]["pause"],
                   "bytes": os.path.getsize(self.image), "durable": until(record, "Committing")}
        figures.update(phases(record))
        return figures

    def restore(self):
        benchlib.warm(self.image)
        start = time.monotonic()
        record = self.client.command("vm-restore", name=self.vm, mode="eager", wait=True)
        figures = {"whole": time.monotonic() - start, "running": record["result"]["running"]}
        figures.update(phases(record))
        return figures

    def cycle(self, save, restore):
        restore.add(**self.restore())
        settle(self.console)
        save.add(**self.hibernate())


def timeline(record):
    """Phases and their begin in seconds after the first."""
    times = [(entry["phase"], datetime.datetime.fromisoformat(entry["at"].replace("Z", "+00:00")))
             for entry in record["timeline"]]
    return [(phase, (at - times[0][1]).total_seconds()) for phase, at in times]


def phases(record):
    line = timeline(record)
    return {f"phase {name}": after - at for (name, at), (_, after) in zip(line, line[1:])}


def until(record, phase):
    return dict(timeline(record))[phase]


# ---------------------------------------------------------------- stock QEMU

class Stock:
    def __init__(self, folder, torpor):
        self.folder = folder
        self.disk = os.path.join(folder, "stock.qcow2")
        self.console = os.path.join(folder, "guest.sock")
        self.monitor = os.path.join(folder, "qmp.sock")
        self.images = {kind: os.path.join(folder, f"stock.{kind}") for kind in ("zstd", "plain")}
        shutil.copyfile(torpor.disk, self.disk)
        self.argv = self.own_paths(torpor)
        self.process = None
        self.qmp = None

    def own_paths(self, torpor):
        """torpor's command line, with sockets and the disk of our own."""
        run = os.path.join(torpor.daemon.runtime, torpor.vm)
        argv = [arg.replace(torpor.disk, self.disk).replace(run, self.folder)
                for arg in torpor.argv if arg != "-S"]
        argv = [re.sub(r"id=torpor-qmp,fd=\d+", f"id=torpor-qmp,path={self.monitor}", arg)
                for arg in argv]
        return [re.sub(r"id=torpor-agent,fd=\d+", f"id=torpor-agent,path={self.folder}/agent", arg)
                for arg in argv]

    def start(self, incoming, fds=()):
        for path in (self.console, self.monitor):
            if os.path.exists(path):
                os.unlink(path)
        with open(os.path.join(self.folder, "stock.log"), "wb") as log:
            self.process = subprocess.Popen(self.argv + ["-S", "-incoming", incoming],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            pass_fds=fds)
        self.qmp = guestvm.Qmp(self.monitor)

    def await_status(self, wanted):
        while True:
            status = self.qmp.command("query-status", seconds=120)["status"]
            if status == wanted:
                return
            if status not in ("inmigrate", "paused"):
                raise RuntimeError(f"stock QEMU is {status}")
            time.sleep(STATUS_SECONDS)

    def load(self, incoming, fds=()):
        start = time.monotonic()
        self.start(incoming, fds)
        self.await_status("paused")
        self.qmp.command("cont")
        self.await_status("running")
        return {"running": time.monotonic() - start}

    def load_zstd(self, image):
        benchlib.warm(image)
        return self.load(f"exec:zstd -dc {image}")

    def load_plain(self, image):
        benchlib.warm(image)
        with open(image, "rb", buffering=0) as file:
            return self.load(f"fd:{file.fileno()}", (file.fileno(),))

    def migrate(self, fd):
        """Sends the stopped guest to a descriptor, which is closed here."""
        capabilities = [{"capability": "events", "state": True}]
        self.qmp.command("stop")
        self.qmp.command("migrate-set-capabilities", {"capabilities": capabilities})
        self.qmp.command("migrate-set-parameters", {"max-bandwidth": 0, "downtime-limit": 0})
        self.qmp.command("getfd", {"fdname": "save"}, fd=fd)
        os.close(fd)
        self.qmp.command("migrate", {"uri": "fd:save"})
        while True:
            event = self.qmp.event("MIGRATION", seconds=120)
            if event is None or event["data"]["status"] in ("failed", "cancelled"):
                raise RuntimeError("stock QEMU could not save its state")
            if event["data"]["status"] == "completed":
                return

    def save_zstd(self):
        image = self.fresh("zstd")
        cpu, start = benchlib.busy_seconds(), time.monotonic()
        with open(image, "wb", buffering=0) as file:
            out, into = os.pipe()
            zstd = subprocess.Popen(["zstd", "-q", "-1", "-T2", "-c"], stdin=out, stdout=file)
            os.close(out)
            self.migrate(into)
            if zstd.wait() != 0:
                raise RuntimeError("zstd failed")
            written = time.monotonic()
            os.fsync(file.fileno())
        return self.saved(image, start, written, cpu)

    def save_plain(self):
        image = self.fresh("plain")
        cpu, start = benchlib.busy_seconds(), time.monotonic()
        with open(image, "wb", buffering=0) as file:
            self.migrate(os.dup(file.fileno()))
            written = time.monotonic()
            os.fsync(file.fileno())
        return self.saved(image, start, written, cpu)

    def saved(self, image, start, written, cpu):
        synced = time.monotonic()
        self.quit()
        end = time.monotonic()
        return {"written": written - start, "durable": synced - start, "whole": end - start,
                "cpu": benchlib.busy_seconds() - cpu, "bytes": os.path.getsize(image)}

    def fresh(self, kind):
        """No earlier file is truncated while time is measured, and nothing waits to be written."""
        if os.path.exists(self.images[kind]):
            os.unlink(self.images[kind])
        os.sync()
        return self.images[kind]

    def quit(self):
        self.qmp.command("quit")
        self.process.wait()
        self.qmp.sock.close()

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def prepare(self, image):
        """Both kinds of saved state, from torpor's image."""
        for kind in ("zstd", "plain"):
            self.load_zstd(image if kind == "zstd" else self.images["zstd"])
            settle(self.console)
            self.save_zstd() if kind == "zstd" else self.save_plain()

    def cycle(self, kind, save, restore):
        load, store = {"zstd": (self.load_zstd, self.save_zstd),
                       "plain": (self.load_plain, self.save_plain)}[kind]
        restore.add(**load(self.images[kind]))
        settle(self.console)
        save.add(**store())

    def verify(self):
        self.load_zstd(self.images["zstd"])
        ask(self.console, "verify")
        self.quit()
