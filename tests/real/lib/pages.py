# SPDX-License-Identifier: LGPL-2.1-or-later
"""A page server without an engine: torpor-mover and an incoming QEMU, both driven by hand."""

import array
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time

from .base import Failure, check, poll

CAPABILITIES = ("postcopy-ram", "events", "late-block-activate", "postcopy-blocktime",
                "return-path")


class Server:
    """A torpor-mover with the job page-server; `messages` are those that came, but progress."""

    def __init__(self, s, image, folder, stream=None, **request):
        self.listen_path = os.path.join(folder, "pages.sock")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.path.exists(self.listen_path):
            os.unlink(self.listen_path)
        self.listener.bind(self.listen_path)
        self.listener.listen(4)
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = os.path.join(s.build, "torpor-mover")
        self.pid = os.posix_spawn(program, ["torpor-mover"], dict(os.environ), file_actions=[
            (os.POSIX_SPAWN_DUP2, theirs.fileno(), 3)])
        s.at_end(self.kill)
        theirs.close()
        self.status = None
        self.messages = []
        self.progress = None
        with open(image, "rb") as file:
            fds = [("image", file.fileno()), ("listener", self.listener.fileno())]
            if stream is not None:
                fds.insert(0, ("stream", stream.fileno()))
            self.send({"job": "page-server", "protocol": 1, "vm": "vm", "op": "op-1",
                       "fds": [name for name, _ in fds], **request}, [fd for _, fd in fds])
        self.started = time.monotonic()

    def send(self, message, fds=()):
        data = json.dumps(message).encode()
        self.sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                    array.array("i", fds))] if fds else [])

    def receive(self, seconds=60):
        """The next message; None: the connection ended."""
        if not select.select([self.sock], [], [], seconds)[0]:
            raise Failure(f"no message of the page server within {seconds} s; "
                          f"the last were {self.messages[-3:]}, {self.progress}")
        try:
            data = self.sock.recv(1 << 17)
        except ConnectionResetError:
            data = b""
        if not data:
            return None
        message = json.loads(data)
        if "progress" in message:
            self.progress = message["progress"]
        else:
            self.messages.append(message)
        return message

    def expect(self, name, seconds=60):
        """The value of the next message of that name; others are passed over, errors are not."""
        while True:
            message = self.receive(seconds)
            if message is None:
                raise Failure(f"the page server ended; its last words: {self.messages[-2:]}")
            if name in message:
                return message[name]
            if "error" in message:
                raise Failure(f"the page server failed: {message}")

    def state(self, name, seconds=60):
        """Waits until it is in this state."""
        while True:
            value = self.expect("state", seconds)
            if value["state"] == name:
                return value

    def ask(self):
        """Its progress, not older than a tenth of a second."""
        while select.select([self.sock], [], [], 0)[0]:
            self.receive()
        self.send({"progress": {}})
        return self.expect("progress")

    def reconnect(self):
        """A new control connection; the value of its hello."""
        self.sock.close()
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.connect(self.listen_path)
        return self.expect("hello")

    def wait(self, seconds=20):
        """Its exit status."""
        def ended():
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                # Whoever ends a scenario takes the statuses of all that is left.
                pid, status = self.pid, 0
            self.status = os.waitstatus_to_exitcode(status) if pid else None
            return pid

        if self.status is None:
            poll(ended, seconds, "the end of the page server")
        return self.status

    def kill(self):
        if self.status is None:
            try:
                os.kill(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self.wait()
        self.sock.close()
        self.listener.close()


class Incoming:
    """A QEMU with the arguments of a VM of torpord, started by hand with -S -incoming defer."""

    def __init__(self, s, vm, arguments):
        self.folder = os.path.join(s.dir, f"by-hand-{time.monotonic_ns()}")
        os.mkdir(self.folder)
        arguments = [argument.replace(vm.run_dir, self.folder) for argument in arguments]
        vm.close()
        vm.run_dir = self.folder
        path = os.path.join(self.folder, "qmp.sock")
        self.log = open(os.path.join(self.folder, "stderr"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            arguments + ["-qmp", f"unix:{path},server=on,wait=off", "-S", "-incoming", "defer"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        s.at_end(self.kill)
        poll(lambda: os.path.exists(path) or self.process.poll() is not None, 20, "QEMU's monitor")
        self.events = []
        self.replies = {}
        self.number = 0
        self.buffer = b""
        self.sock = socket.socket(socket.AF_UNIX)
        poll(lambda: self.sock.connect_ex(path) == 0, 10, "QEMU's monitor")
        self._read(lambda: any("QMP" in message for message in self.events), 20)
        self.qmp("qmp_capabilities", enable=["oob"])

    def _read(self, until, seconds):
        end = time.monotonic() + seconds
        while not until():
            if not select.select([self.sock], [], [], max(0, end - time.monotonic()))[0]:
                raise Failure(f"QEMU does not answer within {seconds} s: {self.stderr()}")
            data = self.sock.recv(65536)
            if not data:
                raise Failure(f"QEMU's monitor closed: {self.stderr()}")
            self.buffer += data
            *lines, self.buffer = self.buffer.split(b"\n")
            for line in filter(None, (line.strip() for line in lines)):
                message = json.loads(line)
                message["at"] = time.monotonic()
                if "id" in message:
                    self.replies[message["id"]] = message
                else:
                    self.events.append(message)

    def send(self, command, fd=None, oob=False, **arguments):
        """Sends a command; the id of its reply."""
        self.number += 1
        data = json.dumps({"exec-oob" if oob else "execute": command, "id": self.number,
                           "arguments": {key.replace("_", "-"): value
                                         for key, value in arguments.items()}}).encode()
        self.sock.sendmsg([data], [] if fd is None else [
            (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
        return self.number

    def reply(self, number, seconds=20):
        self._read(lambda: number in self.replies, seconds)
        return self.replies.pop(number)

    def qmp(self, command, **arguments):
        reply = self.reply(self.send(command, **arguments))
        if "return" not in reply:
            raise Failure(f"{command}: {reply}")
        return reply["return"]

    def event(self, name, seconds=20, **data):
        """The first event of that name with these data; it is taken out."""
        def find():
            for event in self.events:
                if event.get("event") == name and all(
                        event.get("data", {}).get(key) == value for key, value in data.items()):
                    return event
            return None

        self._read(lambda: find() is not None, seconds)
        event = find()
        self.events.remove(event)
        return event

    def prepare(self, without=()):
        """All capabilities that this QEMU has of those that a lazy restore uses."""
        known = {entry["capability"] for entry in self.qmp("query-migrate-capabilities")}
        self.qmp("migrate-set-capabilities", capabilities=[
            {"capability": name, "state": True} for name in CAPABILITIES
            if name in known and name not in without])

    def incoming(self):
        """migrate-incoming on one end of a pair; the other end."""
        ours, theirs = socket.socketpair()
        self.qmp("getfd", fd=theirs.fileno(), fdname="pages")
        theirs.close()
        self.qmp("migrate-incoming", uri="fd:pages")
        return ours

    def recover(self):
        """migrate-recover, out of band, on a socket; our end of it."""
        path = os.path.join(self.folder, f"recover-{self.number}.sock")
        reply = self.reply(self.send("migrate-recover", oob=True, uri=f"unix:{path}"))
        check("return" in reply, f"migrate-recover: {reply}")
        ours = socket.socket(socket.AF_UNIX)
        poll(lambda: ours.connect_ex(path) == 0, 10, "QEMU's socket for the recovery")
        return ours

    def migration(self):
        return self.qmp("query-migrate").get("status")

    def completed(self, seconds=60):
        self.event("MIGRATION", seconds, status="completed")

    def alive(self):
        return self.process.poll() is None

    def stderr(self):
        self.log.flush()
        with open(self.log.name, encoding="utf-8", errors="replace") as file:
            return file.read()[-1000:]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.sock.close()
        self.log.close()


def arguments_of(pid):
    """The command line of a QEMU that torpord runs, without torpord's own monitor."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        words = file.read().decode().rstrip("\0").split("\0")
    result = []
    skip = 0
    for i, word in enumerate(words):
        following = words[i + 1] if i + 1 < len(words) else ""
        if skip:
            skip -= 1
        elif word in ("-chardev", "-mon") and "torpor-qmp" in following:
            skip = 1
        elif word not in ("-S",):
            result.append(word)
    return result


@contextlib.contextmanager
def restoring(s, vm, arguments, image, **request):
    """A QEMU that does not run yet, and a page server for it; at the end neither is left."""
    run_dir = vm.run_dir
    qemu = Incoming(s, vm, arguments)
    qemu.prepare()
    with qemu.incoming() as stream:
        server = Server(s, image, qemu.folder, stream, **request)
    yield qemu, server
    qemu.kill()
    server.kill()
    vm.close()
    vm.run_dir = run_dir
