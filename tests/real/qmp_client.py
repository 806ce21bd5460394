#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""qmp_client SOCKET COMMAND [JSON] - a QMP client from QEMU's qmp-spec.rst, knowing nothing of torpor

Prints the return value. Like QEMU's own Python clients it sends no newline.
"""

import json
import socket
import sys


class QMP:
    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.file = self.sock.makefile("r", encoding="utf-8")
        self.greeting = json.loads(self.file.readline())["QMP"]
        if "version" not in self.greeting or "capabilities" not in self.greeting:
            raise ValueError("the greeting is none")
        self.execute("qmp_capabilities")

    def execute(self, command, arguments=None):
        request = {"execute": command}
        if arguments is not None:
            request["arguments"] = arguments
        self.sock.sendall(json.dumps(request).encode())
        while True:
            message = json.loads(self.file.readline())
            if "return" in message:
                return message["return"]
            if "error" in message:
                raise RuntimeError(f"{message['error']['class']}: {message['error']['desc']}")
            if "event" not in message or "timestamp" not in message:
                raise ValueError(f"neither reply nor event: {message}")


if __name__ == "__main__":
    try:
        print(json.dumps(QMP(sys.argv[1]).execute(
            sys.argv[2], json.loads(sys.argv[3]) if len(sys.argv) > 3 else None)))
    except RuntimeError as error:
        sys.exit(str(error))
