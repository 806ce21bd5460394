# SPDX-License-Identifier: LGPL-2.1-or-later
"""The sides of resume: a guest restored by torpor in its modes, and by stock QEMU."""

import collections
import datetime
import os
import re
import statistics
import threading
import time

import benchlib
import guestvm
from save_restore_sides import Torpor, ask
from save_restore_sides import Stock as StockBase

SIDES = ("lazy", "learnt", "eager", "stock")
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


Image = collections.namedtuple("Image", "id file raw")


class Saved(Torpor):
    """A hibernated guest. Its images are kept, its disk is not written: they can be run again."""

    FILLED = 0.75			# of its RAM; a third of that is zero
    ALLOWED = ["reused-image"]

    def __init__(self, daemon, options, vm):
        super().__init__(daemon, options, vm)
        self.witness = Witness(daemon.socket)
        self.first = self.second = None
        self.operations = []

    def prepare(self):
        """Boots it, and makes two images: the second one knows what the guest touches first."""
        super().prepare()
        ask(self.console, f"ticks {TICK_MS}")
        self.first = self.save()
        self.restore_lazily(self.first, [])
        ask(self.console, TASK)
        self.second = self.save()

    def save(self):
        self.hibernate()
        of = {image["id"]: image["raw-bytes"]
              for image in self.client.command("query-images", vm=self.vm)}
        image_id = os.path.basename(os.path.dirname(self.image))
        return Image(image_id, self.image, of[image_id])

    def image_of(self, side):
        return self.second if side == "learnt" else self.first

    def restore_lazily(self, image, allow):
        self.client.command("vm-restore", name=self.vm, image=image.id, mode="lazy", keep=True,
                            allow=allow, wait=True)

    def resume(self, side):
        image, mode = self.image_of(side), "eager" if side == "eager" else "lazy"
        output = Output(self.console)
        start = time.monotonic()
        record = self.witness.command("vm-restore", name=self.vm, image=image.id, mode=mode,
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
        self.restore_lazily(self.second, self.ALLOWED)
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
