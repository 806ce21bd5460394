# SPDX-License-Identifier: LGPL-2.1-or-later
"""Wrong names, specs, programs and files: each has its class and one sentence that names the thing."""

import copy
import json
import os
import shutil
import socket
import subprocess

from lib import Skip, check, equal, matches, poll
from lib.base import qemu_program


def test_names(s):
    vm = s.vm(disk=False)
    for name in ("a/b", "..", ".hidden", "-x", "a\nb", "", "x" * 65, "x" * 300, "a b", "\u00e4"):
        error = s.client.err("vm-define", "GenericError", name=name, spec=vm.spec)
        matches(error.desc, "name")
        check(len(error.desc) < 400, "the description is too long")
    for name in ("x" * 64, "A.b-c_9"):
        s.client.cmd("vm-define", name=name, spec=vm.spec)
    error = s.client.err("query-vm", "NotFound", name="web1")
    check("web1" in error.desc, error.desc)
    equal(error.data["vm"], "web1")
    equal(error.data["retry"], "never")
    for verb in ("vm-start", "vm-pause", "vm-hibernate", "vm-restore", "vm-quit", "vm-discard",
                 "vm-undefine", "vm-powerdown", "vm-resume", "vm-reset"):
        s.client.err(verb, "NotFound", name="web1")
    equal(len(os.listdir(os.path.join(s.daemon.state, "vms"))), 2, "folders of VMs")


def test_specs(s):
    vm = s.vm(disk=False)
    good = vm.spec

    def refused(named, change):
        spec = copy.deepcopy(good)
        change(spec)
        error = s.client.err("vm-define", "GenericError", name="vm", spec=spec)
        check(named in error.desc, f"{named} is not named: {error.desc}")
        check(error.data.get("argument"), f"no data.argument: {error.data}")

    def add(*args):
        return lambda spec: spec["launch"]["args"].extend(args)

    refused("nonsense", lambda spec: spec.update(nonsense=1))
    refused("nonsense", lambda spec: spec["launch"].update(nonsense=1))
    refused("nonsense", lambda spec: spec.update(hibernate={"nonsense": 1}))
    refused("level", lambda spec: spec.update(hibernate={"level": 77}))
    refused("binary", lambda spec: spec["launch"].update(binary=5))
    refused("args", lambda spec: spec["launch"].update(args="-M q35"))
    refused("launch", lambda spec: spec.pop("launch"))
    for option in (("-daemonize",), ("-incoming", "defer"), ("-S",), ("-preconfig",),
                   ("-no-shutdown",), ("-action", "reboot=shutdown"), ("-pidfile", "/tmp/x"),
                   ("-loadvm", "x"), ("-readconfig", "/tmp/x"), ("-add-fd", "fd=3,set=1"),
                   ("-snapshot",)):
        refused(option[0], add(*option))
        if option[0] == "-S":
            refused("-S", add("--S"))
    refused("snapshot", add("-drive", "file=/tmp/x,snapshot=on"))
    refused("data=", add("-object", "secret,id=s,data=letmein"))
    refused("stdio", add("-monitor", "stdio"))
    refused("{nothing}", add("-name", "{nothing}"))
    refused("path", add("-chardev", "socket,id=x,server=on,path=/tmp/" + "y" * 120))
    refused("absolute", lambda spec: spec["launch"].update(
        disks={"d": {"file": "relative.qcow2", "format": "qcow2"}}))
    refused("format", lambda spec: spec["launch"].update(
        disks={"d": {"file": "/tmp/d", "format": "vmdk"}}))
    s.client.err("query-vm", "NotFound", name="vm")
    good["x-note"] = {"any": "thing"}
    vm.define()
    equal(vm.info()["spec"]["x-note"], {"any": "thing"})


def test_unknown_binary(s):
    vm = s.vm(disk=False)
    vm.spec["launch"]["binary"] = "/nowhere/qemu-system-none"
    vm.define()
    error = s.client.err("vm-start", ("NotFound", "QemuExited", "IOError"), name="vm", wait=True)
    check("/nowhere/qemu-system-none" in error.desc, error.desc)
    vm.expect("shutoff/start-failed")


def test_binary_that_cannot_be_run(s):
    vm = s.vm(disk=False)
    for name, mode, content in (("text", 0o600, b"hello"), ("noise", 0o700, b"\x7fELFnoise")):
        path = s.path(name)
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, mode)
        vm.spec["launch"]["binary"] = path
        vm.define()
        error = s.client.err("vm-start", ("QemuExited", "IOError", "PermissionDenied"), name="vm",
                             wait=True)
        check(path in error.desc, error.desc)
        vm.expect("shutoff/start-failed")


def test_qemu_exits_at_once(s):
    vm = s.vm(disk=False)
    vm.spec["launch"]["args"] += ["-device", "no-such-device"]
    vm.define()
    error = s.client.err("vm-start", "QemuExited", name="vm", wait=True)
    check("no-such-device" in error.desc or "no-such-device" in json.dumps(error.data["log-tail"]),
          error)
    equal(error.data["code"], 1)
    vm.expect("shutoff/start-failed")
    check("no-such-device" in json.dumps(vm.info()["last-exit"]), vm.info()["last-exit"])
    with open(vm.info()["log"], encoding="utf-8") as file:
        check("no-such-device" in file.read(), "QEMU's words are not in its log")


def test_qemu_that_says_nothing(s):
    """A program that lives but never serves its monitor."""
    vm = s.vm(disk=False)
    path = s.path("mute")
    with open(path, "w", encoding="ascii") as file:
        file.write("#!/bin/sh\nexec sleep 1000\n")
    os.chmod(path, 0o700)
    vm.spec["launch"]["binary"] = path
    vm.define()
    error = s.client.err("vm-start", ("Timeout", "MonitorBusy"), name="vm", wait=True, timeout=4)
    check("vm" in error.desc, error.desc)
    vm.wait_state("shutoff/start-failed")
    check(vm.info()["pid"] is None, "a pid is told")


def test_missing_disk(s):
    vm = s.vm(disk=False)
    vm.spec["launch"]["disks"] = {"disk0": {"file": s.path("none.qcow2"), "format": "qcow2"}}
    vm.define()
    error = s.client.err("vm-start", ("NotFound", "QemuExited", "IOError"), name="vm", wait=True)
    check("none.qcow2" in str(error), error)
    vm.expect("shutoff/start-failed")


def test_locked_disk(s):
    vm = s.boot("one")
    other = s.vm("two", disk=False)
    other.spec["launch"]["disks"] = {"disk0": {"file": vm.disk, "format": "qcow2"}}
    other.spec["launch"]["args"] += ["-device", "virtio-blk-pci,drive=disk0"]
    other.define()
    error = s.client.err("vm-start", "QemuExited", name="two", wait=True)
    matches(str(error), "lock")
    vm.tick()


def test_monitor_is_held(s):
    """The engine is away and another client takes QEMU's monitor."""
    if not shutil.which("socat"):
        raise Skip("socat is not installed")
    vm = s.boot()
    before, pid = vm.tick(), vm.info()["pid"]
    s.daemon.kill()
    holder = subprocess.Popen(["socat", "-", f"UNIX-CONNECT:{s.daemon.run}/vm/qmp.sock"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    s.at_end(lambda: (holder.kill(), holder.wait()))
    matches(holder.stdout.readline().decode(), "QMP", "the greeting that socat got")
    s.daemon.expected_death = False
    s.daemon.start()
    error = s.client.err("vm-hibernate", ("MonitorBusy", "QemuExited", "InvalidState", "Timeout"),
                         name="vm", wait=True, timeout=4, seconds=60)
    check(error.desc, "no description")
    equal(vm.info()["pid"], pid, "pid")
    vm.went_on(before)
    holder.stdin.close()
    holder.kill()
    holder.wait()
    vm.wait_state("running/ok", 40)
    vm.hibernate()
    vm.restore()
    vm.went_on(before)


def test_arguments(s):
    vm = s.vm()
    vm.define()
    for verb, arguments, named in (
            ("vm-start", {"mode": "sideways"}, "mode"), ("vm-start", {"timeout": -1}, "timeout"),
            ("vm-start", {"timeout": "long"}, "timeout"), ("vm-start", {"paused": 1}, "paused"),
            ("vm-start", {"operation_id": "a/b"}, "operation-id"),
            ("vm-hibernate", {"level": 0}, "level"), ("vm-hibernate", {"level": 2.5}, "level"),
            ("vm-hibernate", {"pool": "../x"}, "pool"), ("vm-restore", {"allow": ["all"]}, "allow"),
            ("vm-restore", {"image": "../../etc/passwd"}, "image"),
            ("vm-restore", {"clock": "mars"}, "clock"), ("vm-monitor", {}, "execute"),
            ("query-vms", {"limit": 0, "name": None}, "limit")):
        if verb.startswith("vm-"):
            arguments = {"name": "vm", **arguments}
        else:
            arguments.pop("name")
        error = s.client.err(verb, "GenericError", **arguments)
        check(named in error.desc, f"{verb}: {named} is not named: {error.desc}")
        equal(error.data.get("argument", "").split(".")[0].split("[")[0], named, "data.argument")
    s.client.err("vm-restore", "NotFound", name="vm", image="vm-20200101T000000Z-abcdef", wait=True)
    s.client.err("image-delete", "NotFound", image="vm-20200101T000000Z-abcdef")
    vm.expect("shutoff/never-started")


def test_socket_path_too_long(s):
    s.start()
    other = s.new_daemon(os.path.join(s.dir, "other"))
    os.makedirs(other.dir)
    other.socket = os.path.join(s.dir, "y" * 120, "torpor.sock")
    try:
        other.start()
    except AssertionError:
        pass
    check(other.process.returncode in (1, 2), f"status {other.process.returncode}")
    other.expected_death = True
    matches(other.log(), "at most 107", "the message")


def test_pool_that_is_no_folder(s):
    with open(s.path("file"), "w", encoding="ascii"):
        pass
    s.daemon.pools["bad"] = s.path("file")
    s.start()
    state = {pool["name"]: pool["state"] for pool in s.client.cmd("query-pools")}
    equal(state["default"], "ok")
    equal(state["bad"], "missing")
    del s.daemon.pools["bad"]


def test_wrong_files_in_the_pool(s):
    """What is in a pool but no image of ours is neither used nor deleted."""
    os.makedirs(os.path.join(s.daemon.pool, "vm", "vm-20200101T000000Z-abcdef"), 0o700)
    note = os.path.join(s.daemon.pool, "note")
    with open(note, "w", encoding="ascii") as file:
        file.write("mine")
    os.makedirs(os.path.join(s.daemon.pool, "..weird"))
    os.chmod(s.daemon.pool, 0o700)
    s.start()
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    vm.restore()
    vm.went_on(before)
    equal(open(note, encoding="ascii").read(), "mine")
    shutil.rmtree(os.path.join(s.daemon.pool, "..weird"))
    os.unlink(note)
    shutil.rmtree(os.path.join(s.daemon.pool, "vm"), ignore_errors=True)


def test_damaged_record_of_one_vm(s):
    """A damaged record costs that VM only."""
    one, two = s.vm("one", disk=False), s.vm("two", disk=False)
    one.define()
    two.define()
    s.daemon.stop()
    path = os.path.join(s.daemon.state, "vms", "one", "spec.json")
    with open(path, "r+b") as file:
        file.truncate(os.path.getsize(path) // 2)
    s.daemon.start()
    two.expect("shutoff/never-started")
    two.start()
    two.ready()
    s.leave_vms = True


def test_image_of_a_newer_version(s):
    vm = s.boot()
    before = vm.tick()
    vm.hibernate()
    path = os.path.join(os.path.dirname(vm.image_file()), "manifest.json")
    with open(path, encoding="utf-8") as file:
        manifest = json.load(file)
    good = json.dumps(manifest)
    key = next((name for name in ("format", "version", "api", "major") if name in manifest), None)
    if key is None:
        raise Skip(f"the manifest has no version: {sorted(manifest)}")
    manifest[key] = 99
    with open(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(manifest))
    error = s.client.err("vm-restore", ("Unsupported", "Incompatible", "Corrupt"), name="vm",
                         wait=True)
    check(error.desc, "no description")
    vm.expect("hibernated/save")
    with open(path, "w", encoding="utf-8") as file:
        file.write(good)
    vm.restore()
    vm.went_on(before)


def test_garbage_on_the_socket(s):
    s.start()
    for data in (os.urandom(4096), b"\0" * 100, b"{" * 60, b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 50):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(s.daemon.socket)
        sock.sendall(data)
        sock.close()
    s.client.cmd("query-version")
    poll(lambda: s.daemon.running(), 1)


def test_old_qemu_is_refused(s):
    """An image of QEMU 10.0 with QEMU 7.2 in its place."""
    if s.qemu == "7.2" or not os.path.exists(qemu_program("7.2")):
        raise Skip("needs both QEMUs")
    vm = s.vm()
    link = s.path("qemu")
    new, old = (f'#!/bin/sh\nexec {qemu_program(v)} "$@"\n' for v in ("10.0", "7.2"))

    def point(text):
        with open(link + ".new", "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(link + ".new", 0o700)
        os.rename(link + ".new", link)

    point(new)
    vm.spec["launch"]["binary"] = link
    vm.boot()
    before = vm.tick()
    vm.hibernate()
    point(old)
    error = s.client.err("vm-restore", ("Incompatible", "QemuExited"), name="vm", wait=True)
    check(error.desc, "no description")
    vm.wait_state("hibernated/save")
    point(new)
    vm.restore()
    vm.went_on(before)
