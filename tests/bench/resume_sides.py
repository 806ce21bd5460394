# SPDX-License-Identifier: LGPL-2.1-or-later
"""The sides of resume: one image, restored by torpor in two modes, and by stock QEMU."""

import datetime
import re
import statistics
import threading
import time

import benchlib
import guestvm
from save_restore_sides import Torpor, ask
from save_restore_sides import Stock as StockBase

SIDES = ("lazy", "eager", "stock")
TASK = "touch 64"
TICK_MS = 20				# of the guest's console
SECONDS = 300				# for anything


class Output(threading.Thread):
    """The console of a guest that is about to run: when it first wrote, when the task was done.

    What is sent to a serial port before its state is loaded is lost with the load, so the task is
    asked for when the first output is seen.
    """

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path = path
        self.first = self.task = self.error = None
        self.over = threading.Event()
        self.start()

    def run(self):
        try:
            sock = guestvm.connect(self.path, time.monotonic() + SECONDS)
            with sock:
                self.read(sock)
        except (OSError, guestvm.Timeout) as error:
            self.error = str(error)
        self.over.set()

    def read(self, sock):
        rest = b""
        while data := sock.recv(65536):
            now = time.monotonic()
            if not self.first:
                self.first = now
                sock.sendall(TASK.encode() + b"\n")
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.startswith(b"OK touch"):
                    self.task = now
                    self.over.set()
                elif line.startswith(b"ERR"):
                    self.error = line.decode("utf-8", "replace")
                    self.over.set()

    def since(self, start):
        if not self.over.wait(SECONDS) or not self.task:
            raise RuntimeError(f"the guest's task was not done: {self.error}")
        return {"output": self.first - start, "task": self.task - start}


# ---------------------------------------------------------------- torpor's side

class Witness(benchlib.Client):
    """A client that notes when QEMU said that its guest runs."""

    def __init__(self, path):
        super().__init__(path)
        self.resumed = None
        self.command("event-filter", events=["QEMU_EVENT"])

    def message(self, deadline):
        message = super().message(deadline)
        if message.get("event") == "QEMU_EVENT" and message["data"]["event"] == "RESUME":
            self.resumed = time.monotonic()
        return message


class Saved(Torpor):
    """A hibernated guest; its image is kept, and its disk never written, so it can be run again."""

    FILLED = 0.75			# of its RAM; a third of that is zero
    ALLOWED = ["reused-image"]

    def __init__(self, daemon, options, vm):
        super().__init__(daemon, options, vm)
        self.witness = Witness(daemon.socket)
        self.image_id = None
        self.raw = 0
        self.operations = []

    def prepare(self):
        super().prepare()
        ask(self.console, f"ticks {TICK_MS}")

    def hibernate(self):
        super().hibernate()
        image = self.client.command("query-images", vm=self.vm)[0]
        self.image_id, self.raw = image["id"], image["raw-bytes"]

    def resume(self, mode):
        output = Output(self.console)
        start = time.monotonic()
        record = self.witness.command("vm-restore", name=self.vm, image=self.image_id, mode=mode,
                                      until="whole", keep=True, allow=self.ALLOWED, wait=True)
        result = record["result"]
        if result["mode"] != mode:
            raise RuntimeError(f"restored in mode {result['mode']}: {record['warnings']}")
        figures = {"running": self.witness.resumed - start, "said": result["running"]}
        figures.update(output.since(start))
        # An eager restore's memory is in when its guest runs; its "whole" is the operation's end.
        figures["whole"] = result["whole"] if mode == "lazy" else figures["running"]
        if mode == "lazy":
            self.operations.append(record["id"])
        self.end_qemu()
        return figures

    def end_qemu(self):
        self.client.command("vm-quit", name=self.vm)
        deadline = time.monotonic() + SECONDS
        while self.query()["pid"]:
            if time.monotonic() > deadline:
                raise RuntimeError("QEMU does not end")
            time.sleep(0.02)

    def verify(self):
        self.client.command("vm-restore", name=self.vm, image=self.image_id, mode="lazy", keep=True,
                            allow=self.ALLOWED, wait=True)
        ask(self.console, "verify")
        self.end_qemu()

    def end(self):
        """QEMU outlives its daemon, so it is ended first, whatever happened."""
        try:
            if self.query()["pid"]:
                self.client.command("vm-quit", name=self.vm)
        except (ConnectionError, RuntimeError, OSError):
            pass
        self.client.close()
        self.witness.close()


class Steps:
    """How long the steps of operations took, by torpord's log (milliseconds)."""

    LINE = re.compile(r"(\S+)Z \w+ +engine\.op: vm=\S+ op=(\S+) step=(\S+) enter$")

    def __init__(self, log):
        self.entered = {}
        with open(log, encoding="utf-8", errors="replace") as file:
            for line in file:
                found = self.LINE.match(line)
                if found:
                    at = datetime.datetime.fromisoformat(found.group(1))
                    self.entered.setdefault(found.group(2), []).append((found.group(3), at))

    def of(self, saved):
        """Medians over the lazy restores of a guest, by step, up to where it runs."""
        times = {}
        for operation in saved.operations:
            entered = self.entered[operation]
            for (step, at), (_, after) in zip(entered, entered[1:]):
                times.setdefault(step, []).append(1000 * (after - at).total_seconds())
                if step == "run":
                    break
        return {step: statistics.median(values) for step, values in times.items()}


# ---------------------------------------------------------------- stock QEMU

class Stock(StockBase):
    """Stock QEMU with the image that torpor saved."""

    def resume(self, image):
        output = Output(self.console)
        start = time.monotonic()
        self.start(f"exec:zstd -dc {image}")
        self.await_status("paused")
        self.qmp.command("cont")
        running = time.monotonic() - start
        figures = {"running": running, "whole": running}
        figures.update(output.since(start))
        self.quit()
        return figures
