# SPDX-License-Identifier: LGPL-2.1-or-later
"""The wire: negotiation, framing, filters, roles, other people's clients; verbs against states."""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time

from lib import Skip, check, deadline, equal, matches, poll, unchanged, version

REAL = os.path.dirname(os.path.abspath(__file__))


def test_greeting_and_negotiation(s):
    s.start()
    client = s.connect(negotiate=False)
    qmp = client.greeting["QMP"]
    equal(qmp["version"]["qemu"], {"major": 0, "minor": 1, "micro": 0})
    matches(qmp["version"]["package"], r"^torpor 0\.1\.0")
    equal(qmp["capabilities"], [])
    error = client.err("query-version", "CommandNotFound")
    matches(error.desc, "qmp_capabilities")
    client.cmd("qmp_capabilities")
    error = client.err("qmp_capabilities", "CommandNotFound")
    matches(error.desc, "already complete")
    found = client.cmd("query-version")
    equal((found["torpor"], found["api"], found["pid"]), ("0.1.0", 1, s.daemon.pid))
    client.err("no-such-command", "CommandNotFound")
    error = client.err("query-version", "GenericError", nonsense=1)
    matches(error.desc, "nonsense")


def test_schema(s):
    s.start()
    commands = {entry["name"] for entry in s.client.cmd("query-commands")}
    schema = s.client.cmd("query-qmp-schema")
    equal({entry["name"] for entry in schema if entry["meta-type"] == "command"}, commands)
    names = {entry["name"] for entry in schema}
    for entry in schema:
        for key in ("arg-type", "ret-type", "element-type"):
            check(key not in entry or entry[key] in names, f"{entry['name']}: {entry.get(key)}")
    for wanted in ("vm-define", "vm-start", "vm-hibernate", "vm-restore", "vm-discard"):
        check(wanted in commands, f"{wanted} is missing")
    printed = subprocess.run([s.daemon.program, "--print-schema"], capture_output=True, check=True)
    check(json.loads(printed.stdout), "torpord --print-schema")


def test_framing(s):
    s.start()
    client = s.connect()
    # Two on a line, one over several lines, none ended by a newline.
    client.send_raw(b'{"execute":"query-version","id":"a"}{"execute":"query-pools","id":"b"}'
                    b'\n{"execute":\n\n"query-vms"\n, "id": {"c": [1, null]}}')
    for request_id in ("a", "b", {"c": [1, None]}):
        check("return" in client.reply(request_id), f"reply {request_id}")
    # Torn into bytes.
    for byte in b'{"execute": "query-vms", "id": 77}':
        client.send_raw(bytes([byte]))
    check("return" in client.reply(77), "reply to a torn request")
    # A 0xFF byte ends what was begun.
    client.send_raw(b'{"execute": "query-vms", "arguments": {\xff{"execute": "query-vms", "id": 78}')
    check("return" in client.reply(78), "reply after 0xFF")
    for bad in (b"garbage\n", b"[1,2]", b'{"execute": 5}', b'"text" '):
        client.send_raw(bad)
        client.replies.clear()
        poll(lambda: (client.drain(), client.replies)[1], 5, f"an error for {bad}")
        for reply in client.replies.values():
            equal(reply["error"]["class"], "GenericError")
        client.send_raw(b"\xff")
    client.replies.clear()
    client.cmd("query-vms")


def test_without_ids_in_turn(s):
    s.start()
    client = s.connect()
    vm = s.vm()
    vm.define()
    client.send_raw(json.dumps({"execute": "vm-start", "arguments": {
        "name": "vm", "wait": True}}).encode() + b'{"execute": "query-vm", "arguments": '
        b'{"name": "vm"}}')
    first = client.reply(None, 60)
    equal(first["return"]["status"], "succeeded")
    equal(client.reply(None)["return"]["state"], "running")


@version
def test_stock_client(s):
    vm = s.boot()

    def run(*args, status=0):
        done = subprocess.run([sys.executable, os.path.join(REAL, "qmp_client.py"),
                               s.daemon.socket, *args], capture_output=True, text=True,
                              timeout=60, check=False)
        equal(done.returncode, status, f"status ({done.stdout}{done.stderr})")
        return done

    before = vm.tick()
    equal(json.loads(run("query-vm", '{"name": "vm"}').stdout)["state"], "running")
    run("vm-hibernate", '{"name": "vm", "wait": true}')
    vm.expect("hibernated/save")
    run("vm-restore", '{"name": "vm", "wait": true}')
    vm.went_on(before)
    matches(run("query-vm", '{"name": "none"}', status=1).stderr, "NotFound")


def test_socat_half_close(s):
    if not shutil.which("socat"):
        raise Skip("socat is not installed")
    s.start()
    requests = '{"execute": "qmp_capabilities"}{"execute": "query-version"}{"execute": "query-vms"}'
    done = subprocess.run(["socat", "-t", "20", "-", f"UNIX-CONNECT:{s.daemon.socket}"],
                          input=requests.encode(), capture_output=True, timeout=30, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    check(done.stdout.endswith(b"\r\n"), "lines do not end with CR LF")
    equal(["QMP" in lines[0], lines[1]], [True, {"return": {}}])
    equal(lines[2]["return"]["api"], 1)
    equal(lines[3], {"return": []})


def test_half_close_with_an_operation(s):
    """Outstanding replies are still sent after the client has closed its sending side."""
    vm = s.boot()
    client = s.connect()
    request = client.send("vm-hibernate", name="vm", wait=True)
    client.sock.shutdown(socket.SHUT_WR)
    equal(client.reply(request, 60)["return"]["status"], "succeeded")
    vm.expect("hibernated/save")


def test_limits_of_a_request(s):
    s.start()
    other = s.connect()
    for data in (b'{"execute": "query-vms", "arguments": {"x": "' + b"y" * (2 << 20) + b'"}}',
                 b'{"execute": "query-vms", "id": ' + b"[" * 1000 + b"]" * 1000 + b"}"):
        client = s.connect()
        try:
            client.send_raw(data)
        except (BrokenPipeError, ConnectionResetError):
            pass
        poll(lambda client=client: (client.drain(), client.ended)[1], 10, "the connection's end")
        errors = [reply["error"] for reply in client.replies.values()]
        equal(len(errors), 1, f"errors ({errors})")
        equal(errors[0]["class"], "GenericError")
        check("id" not in list(client.replies.values())[0], "an id")
    other.cmd("query-vms")


def test_a_client_that_does_not_read(s):
    s.start()
    lazy = socket.socket(socket.AF_UNIX)
    lazy.connect(s.daemon.socket)
    lazy.setblocking(False)
    s.at_end(lazy.close)
    request = b'{"execute": "qmp_capabilities"}' + b'{"execute": "query-qmp-schema", "id": 1}' * 400
    sent = 0
    end = time.monotonic() + 60
    gone = False
    while time.monotonic() < end and not gone:
        if select.select([], [lazy], [], 0.1)[1]:
            try:
                sent += lazy.send(request)
            except (BrokenPipeError, ConnectionResetError):
                gone = True
        elif sent:
            # Nothing more is taken: everybody else must not notice.
            break
    with s.connect() as client:
        began = time.monotonic()
        for _ in range(20):
            client.cmd("query-version")
        check(time.monotonic() - began < 30, "others wait for the lazy client")
    check(s.daemon.rss() < (900 << 20 if s.options.san else 64 << 20),
          f"torpord uses {s.daemon.rss() >> 20} MiB")


def test_events_and_filter(s):
    vm = s.vm()
    s.start()
    everything, none, one = s.connect(), s.connect(), s.connect()
    none.cmd("event-filter", events=[])
    one.cmd("event-filter", events=["VM_STATE"], vms=["vm"], progress=False)
    vm.define()
    other = s.vm("other")
    other.define()
    vm.boot()
    other.start()
    vm.hibernate()
    for client in (everything, none, one):
        client.cmd("query-version")
        client.drain()
    equal(none.events, [])
    states = [event["data"]["state"] for event in one.events]
    equal({event["event"] for event in one.events}, {"VM_STATE"})
    equal({event["data"]["vm"] for event in one.events}, {"vm"})
    for wanted in ("starting", "running", "hibernating", "hibernated"):
        check(wanted in states, f"{wanted} is not in {states}")
    seen = {event["event"] for event in everything.events}
    for wanted in ("VM_DEFINED", "VM_STATE", "OPERATION", "IMAGE"):
        check(wanted in seen, f"no {wanted} among {seen}")
    numbers = [event["data"]["seq"] for event in everything.events]
    equal(numbers, list(range(numbers[0], numbers[0] + len(numbers))), "seq")
    for event in everything.events:
        check(event["timestamp"]["seconds"] > 1e9, event)


def test_qemu_events_on_demand(s):
    vm = s.boot()
    client = s.connect()
    client.cmd("event-filter", events=["QEMU_EVENT"])
    vm.pause()
    event = client.event("QEMU_EVENT", lambda data: data["event"] == "STOP")
    equal(event["data"]["vm"], "vm")


def test_fields_name(s):
    s.vm().define()
    equal(s.client.cmd("query-vms", fields=["state"]), [{"name": "vm", "state": "shutoff"}])


def test_lists(s):
    names = [f"vm{number}" for number in range(5)]
    for name in names:
        vm = s.vm(name, disk=False)
        vm.define()
    listed = s.client.cmd("query-vms", fields=["name"])
    equal([entry["name"] for entry in listed], names)
    page = s.client.cmd("query-vms", fields=["name"], limit=2, after="vm1")
    equal([entry["name"] for entry in page], ["vm2", "vm3"])
    equal(s.client.cmd("query-vms", state="running"), [])
    equal([entry["name"] for entry in s.client.cmd("query-vms", names=["vm3"])], ["vm3"])


def test_generations(s):
    vm = s.vm()
    equal(vm.define(if_generation=0)["generation"], 1)
    s.client.err("vm-define", "Conflict", name="vm", spec=vm.spec, if_generation=0)
    error = s.client.err("vm-set", "Conflict", name="vm", merge={"labels": {}}, if_generation=7)
    check(error.data["retry"] == "now", error.data)
    found = s.client.cmd("vm-set", name="vm", merge={"hibernate": {"level": 3}, "labels": {"a": "b"}})
    equal(found["generation"], 2)
    spec = vm.info()["spec"]
    equal((spec["hibernate"]["level"], spec["labels"]), (3, {"a": "b"}))
    s.client.cmd("vm-set", name="vm", merge={"labels": None})
    check("labels" not in vm.info()["spec"], "the label is still there")
    s.daemon.restart(kill=True)
    equal(vm.info()["generation"], 3)


def test_descriptors_by_getfd(s):
    s.start()
    client = s.connect()
    with open("/dev/null", "rb") as file:
        client.cmd("getfd", fd=file.fileno(), fdname="null")
    client.cmd("closefd", fdname="null")
    client.err("closefd", "GenericError", fdname="null")
    client.err("getfd", "GenericError", fdname="null")


# The table of verbs and states: what each verb answers, in each state that this test can make.
TABLE = {
    #            shutoff         running         paused          hibernated      crashed
    "vm-start": ("ok",          "=",            "InvalidState", "ok",           "ok"),
    "vm-hibernate": ("InvalidState", "ok",      "ok",           "=",            "InvalidState"),
    "vm-restore": ("InvalidState", "InvalidState", "InvalidState", "ok",        "InvalidState"),
    "vm-pause": ("InvalidState", "ok",          "=",            "InvalidState", "InvalidState"),
    "vm-resume": ("InvalidState", "=",          "ok",           "InvalidState", "InvalidState"),
    "vm-powerdown": ("=",       "ok",           "InvalidState", "InvalidState", "="),
    "vm-quit": ("=",            "ok",           "ok",           "=",            "ok"),
    "vm-monitor": ("InvalidState", "ok",        "ok",           "InvalidState", "InvalidState"),
    "vm-reset": ("InvalidState", "ok",          "ok",           "InvalidState", "InvalidState"),
    "vm-discard": ("=",         "InvalidState", "InvalidState", "ok",        "="),
}
STATES = ("shutoff", "running", "paused", "hibernated", "crashed")
OPERATIONS = ("vm-start", "vm-hibernate", "vm-restore", "vm-powerdown")


def refused_ones(s, vm, state):
    """All verbs that change nothing in this state."""
    for verb, row in TABLE.items():
        wanted = row[STATES.index(state)]
        if wanted == "ok":
            continue
        arguments = {"name": "vm"}
        if verb in OPERATIONS:
            arguments["wait"] = True
        if verb == "vm-monitor":
            arguments["execute"] = "query-status"
        if wanted == "=":
            unchanged(s.client.cmd(verb, **arguments))
        else:
            error = s.client.err(verb, wanted, **arguments)
            check("vm" in error.desc, f"{verb} in {state}: the VM is not named: {error.desc}")
        vm.expect(state)


@deadline(240)
def test_verbs_and_states(s):
    vm = s.vm()
    vm.define()
    refused_ones(s, vm, "shutoff")
    vm.start()
    vm.ready()
    refused_ones(s, vm, "running")
    vm.monitor("query-status")
    vm.pause()
    refused_ones(s, vm, "paused")
    equal(s.client.err("vm-start", "InvalidState", name="vm", wait=True).data["use"], "vm-resume")
    vm.monitor("query-status")
    s.client.cmd("vm-reset", name="vm")
    vm.resume()
    vm.ready(vm.mark())
    vm.hibernate()
    refused_ones(s, vm, "hibernated")
    matches(s.client.err("vm-powerdown", "InvalidState", name="vm", wait=True).desc, "discard")
    vm.start()
    vm.tick()
    os.kill(vm.info()["pid"], signal.SIGKILL)
    vm.wait_state("crashed")
    refused_ones(s, vm, "crashed")
    vm.start()
    vm.quit()
    vm.expect("shutoff/quit")
    vm.start()
    vm.pause()
    vm.hibernate()
    s.client.cmd("vm-discard", name="vm")
    vm.expect("shutoff/discarded")
