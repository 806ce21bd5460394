# SPDX-License-Identifier: LGPL-2.1-or-later
"""Run QEMU with the test guest, without torpor: QMP, console and agent over their sockets."""

import array
import json
import os
import queue
import re
import secrets
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("TORPOR_BUILD", os.path.join(TOP, "build"))
VERSIONS = ("7.2", "10.0")
POLL_SECONDS = 0.005


class Timeout(Exception):
    pass


def qemu_program(version, name="qemu-system-x86_64"):
    return os.path.join(BUILD, "qemu", version, name)


def connect(path, deadline):
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(path)
            return sock
        except (FileNotFoundError, ConnectionRefusedError):
            sock.close()
            if time.monotonic() > deadline:
                raise Timeout(f"nobody listens on {path}") from None
            time.sleep(POLL_SECONDS)


class Lines:
    """Lines of a socket, with deadlines. At end of file `ended` is true."""

    def __init__(self, sock):
        self.sock = sock
        self.buffer = b""
        self.ended = False

    def next(self, deadline):
        while b"\n" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.sock], [], [], left)[0]:
                raise Timeout("no line in time")
            try:
                data = self.sock.recv(65536)
            except ConnectionResetError:
                data = b""
            if not data:
                self.ended = True
                return None
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line


class Console(threading.Thread):
    """Drains a serial console all the time.

    QEMU writes the console a byte at a time, and a Unix socket is full after some 280 such writes:
    a guest whose console is connected but not read stands still.
    """

    def __init__(self, sock):
        super().__init__(daemon=True)
        self.sock = sock
        self.lines = queue.Queue()
        self.start()

    def run(self):
        rest = b""
        while True:
            try:
                data = self.sock.recv(65536)
            except OSError:
                data = b""
            if not data:
                self.lines.put(None)
                return
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                self.lines.put(line.decode("utf-8", "replace").strip("\r"))

    def send(self, text):
        self.sock.sendall(text.encode() + b"\n")

    def next(self, deadline):
        try:
            return self.lines.get(timeout=max(0, deadline - time.monotonic()))
        except queue.Empty:
            raise Timeout("no console line in time") from None


class Qmp:
    def __init__(self, path, seconds=20):
        deadline = time.monotonic() + seconds
        self.sock = connect(path, deadline)
        self.lines = Lines(self.sock)
        self.events = []
        self.session = secrets.token_hex(4)
        self.count = 0
        self.greeting = json.loads(self.lines.next(deadline))
        self.command("qmp_capabilities")

    def call(self, name, arguments=None, fd=None, seconds=20):
        """The reply object, whether it is a return or an error."""
        self.count += 1
        request_id = f"{self.session}-{self.count}"
        request = {"execute": name, "id": request_id}
        if arguments is not None:
            request["arguments"] = arguments
        ancillary = []
        if fd is not None:
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
        self.sock.sendmsg([json.dumps(request).encode() + b"\n"], ancillary)
        deadline = time.monotonic() + seconds
        while True:
            line = self.lines.next(deadline)
            if line is None:
                raise ConnectionError(f"QEMU closed the monitor during {name}")
            message = json.loads(line)
            if "event" in message:
                self.events.append(message)
            elif message.get("id") == request_id:
                return message

    def command(self, name, arguments=None, fd=None, seconds=20):
        reply = self.call(name, arguments, fd, seconds)
        if "error" in reply:
            raise RuntimeError(f"{name}: {reply['error']['desc']}")
        return reply["return"]

    def event(self, name, seconds=20):
        """The next event of that name; earlier ones of other names are dropped. None at the end."""
        deadline = time.monotonic() + seconds
        while True:
            while self.events:
                event = self.events.pop(0)
                if event["event"] == name:
                    return event
            line = self.lines.next(deadline)
            if line is None:
                return None
            message = json.loads(line)
            if "event" in message:
                self.events.append(message)


class Guest:
    """One QEMU with the test guest in its own directory. Use it in a with statement."""

    def __init__(self, version="10.0", machine="q35", memory="256M", append="", extra=(),
                 disk=True):
        self.dir = tempfile.mkdtemp(prefix="torpor-guest.")
        self.version = version
        self.seen = []
        guest = os.path.join(BUILD, "guest")
        with open(os.path.join(guest, "cmdline"), encoding="ascii") as file:
            cmdline = file.read().strip()
        self.argv = [
            qemu_program(version), "-nodefaults", "-no-user-config", "-display", "none",
            "-machine", machine, "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", memory,
            "-kernel", os.path.join(guest, "vmlinuz"),
            "-initrd", os.path.join(guest, "initrd.img"),
            "-append", f"{cmdline} {append}".strip(),
            "-chardev", f"socket,id=console,path={self.dir}/console,server=on,wait=off",
            "-serial", "chardev:console",
            "-chardev", f"socket,id=agent,path={self.dir}/agent,server=on,wait=off",
            "-device", "virtio-serial-pci",
            "-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0,id=ga0",
            "-device", "pvpanic-pci",
            "-qmp", f"unix:{self.dir}/qmp,server=on,wait=off",
        ]
        if disk:
            image = os.path.join(self.dir, "disk.qcow2")
            subprocess.run([qemu_program(version, "qemu-img"), "convert", "-f", "raw", "-O",
                            "qcow2", os.path.join(guest, "disk-template.raw"), image], check=True)
            self.argv += ["-blockdev", "driver=qcow2,node-name=disk0,file.driver=file,"
                          f"file.filename={image}", "-device", "virtio-blk-pci,drive=disk0"]
        self.argv += extra
        self.process = None

    def __enter__(self):
        self.started = time.monotonic()
        with open(os.path.join(self.dir, "stderr"), "wb") as stderr:
            self.process = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL,
                                            stdout=stderr, stderr=stderr)
        try:
            deadline = time.monotonic() + 20
            self.console = Console(connect(f"{self.dir}/console", deadline))
            self.qmp = Qmp(f"{self.dir}/qmp")
        except Exception:
            self.__exit__()
            raise
        return self

    def restart(self):
        """Start QEMU again, after it ended, with the same arguments and the same disk."""
        self.process.wait()
        for name in ("console", "agent", "qmp"):
            if os.path.exists(os.path.join(self.dir, name)):
                os.unlink(os.path.join(self.dir, name))
        self.__enter__()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        shutil.rmtree(self.dir)

    def stderr(self):
        with open(os.path.join(self.dir, "stderr"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def line(self, pattern, seconds=60):
        """The match of the next console line that matches."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self.console.next(deadline)
            except Timeout:
                raise Timeout(f"no console line matched {pattern!r}; last: {self.seen[-3:]}"
                              f" {self.stderr()}") from None
            if line is None:
                raise ConnectionError(f"console closed, waiting for {pattern!r}")
            self.seen.append(line)
            match = re.search(pattern, line)
            if match:
                return match

    def ask(self, command, seconds=60):
        """Send a console command; the text after OK or ERR and the name, and whether it was OK."""
        self.console.send(command)
        name = command.split()[0]
        match = self.line(rf"^(OK|ERR) {re.escape(name)}\b ?(.*)", seconds)
        return match.group(1) == "OK", match.group(2)

    def agent(self, command, seconds=20):
        """One agent command on a new connection, after a sync."""
        deadline = time.monotonic() + seconds
        sock = connect(f"{self.dir}/agent", deadline)
        try:
            lines = Lines(sock)
            number = secrets.randbelow(1 << 31)
            sync = {"execute": "guest-sync-delimited", "arguments": {"id": number}}
            sock.sendall(b"\xff" + json.dumps(sync).encode() + b"\n")
            while True:
                _, mark, line = (lines.next(deadline) or b"").rpartition(b"\xff")
                if lines.ended:
                    raise ConnectionError("agent channel closed")
                if mark and json.loads(line).get("return") == number:
                    break
            sock.sendall(json.dumps({"execute": command}).encode() + b"\n")
            return json.loads(lines.next(deadline))
        finally:
            sock.close()
