# SPDX-License-Identifier: LGPL-2.1-or-later
"""A client of torpord's socket."""

import array
import json
import select
import socket
import time

from .base import Failure


class TorporError(Exception):
    """An error reply: its class, its sentence, its data."""

    def __init__(self, command, error):
        self.cls = error["class"]
        self.desc = error["desc"]
        self.data = error.get("data", {})
        super().__init__(f"{command}: {self.cls}: {self.desc} {json.dumps(self.data)[:2000]}")


def _wire(arguments):
    return {key.rstrip("_").replace("_", "-"): value for key, value in arguments.items()}


class Client:
    """One connection. Events are kept in `events`, replies are matched by id."""

    def __init__(self, path, negotiate=True, seconds=30):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(seconds)
        self.sock.connect(path)
        self.seconds = seconds
        self.buffer = b""
        self.events = []
        self.replies = {}
        self.count = 0
        self.ended = False
        self.greeting = self._message(time.monotonic() + seconds)
        if negotiate:
            self.cmd("qmp_capabilities")

    def close(self):
        self.sock.close()
        self.ended = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # --- receiving ---

    def _message(self, end):
        """The next message; None at the end of the connection."""
        while b"\n" not in self.buffer:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self.sock], [], [], left)[0]:
                raise Failure("torpord sent nothing in time")
            try:
                data = self.sock.recv(1 << 18)
            except ConnectionResetError:
                data = b""
            if not data:
                self.ended = True
                return None
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        return json.loads(line)

    def _take(self, end):
        message = self._message(end)
        if message is None:
            return False
        if "event" in message:
            self.events.append(message)
        else:
            self.replies[json.dumps(message.get("id"))] = message
        return True

    def drain(self):
        """Takes what has come already."""
        while not self.ended and (b"\n" in self.buffer or select.select([self.sock], [], [], 0)[0]):
            self._take(time.monotonic() + self.seconds)

    # --- commands ---

    def send(self, command, fd=None, **arguments):
        """Sends a command without waiting; the id is for reply()."""
        self.count += 1
        request = {"execute": command, "id": self.count}
        if arguments:
            request["arguments"] = _wire(arguments)
        self.send_raw(json.dumps(request).encode(), fd)
        return self.count

    def send_raw(self, data, fd=None):
        if fd is None:
            self.sock.sendall(data)
        else:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
            self.sock.sendmsg([data], rights)

    def reply(self, request_id, seconds=None):
        """The whole reply object of a sent command."""
        end = time.monotonic() + (seconds or self.seconds)
        key = json.dumps(request_id)
        while key not in self.replies:
            if not self._take(end):
                raise Failure(f"torpord closed the connection before reply {request_id}")
        return self.replies.pop(key)

    def cmd(self, command, seconds=None, fd=None, **arguments):
        """The return value; raises TorporError. `name_with` is sent as `name-with`."""
        reply = self.reply(self.send(command, fd, **arguments), seconds)
        if "error" in reply:
            raise TorporError(command, reply["error"])
        return reply["return"]

    def err(self, command, cls, seconds=None, **arguments):
        """The error of a command that must fail with this class (or one of these)."""
        reply = self.reply(self.send(command, **arguments), seconds)
        wanted = (cls,) if isinstance(cls, str) else cls
        if "error" not in reply:
            raise Failure(f"{command} {arguments}: {cls} was expected, came {reply['return']!r}")
        error = TorporError(command, reply["error"])
        if error.cls not in wanted:
            raise Failure(f"{command} {arguments}: {cls} was expected, came {error}")
        if not error.desc or "\n" in error.desc:
            raise Failure(f"{command}: the description is not one line: {error.desc!r}")
        return error

    # --- events ---

    def event(self, name, match=None, seconds=None):
        """The next event of that name for which match(data) holds; takes it and all before it."""
        end = time.monotonic() + (seconds or self.seconds)
        while True:
            while self.events:
                event = self.events.pop(0)
                if event["event"] == name and (match is None or match(event["data"])):
                    return event
            try:
                ended = not self._take(end)
            except Failure:
                raise Failure(f"no event {name} came in time") from None
            if ended:
                raise Failure(f"connection closed while waiting for event {name}")

    def phases(self, operation):
        """The phases that events told so far about an operation, each once, in order."""
        self.drain()
        found = []
        for event in self.events:
            if event["event"] == "OPERATION" and event["data"]["id"] == operation:
                if not found or found[-1] != event["data"]["phase"]:
                    found.append(event["data"]["phase"])
        return found
