# SPDX-License-Identifier: LGPL-2.1-or-later
"""Starting, pausing, ending and losing VMs."""

import os
import signal
import time

from lib import Client, check, equal, matches, poll, slow, unchanged, version
from lib.proc import alive


@version
def test_start_pause_resume_reset(s):
    vm = s.vm()
    defined = vm.define()
    equal(defined["generation"], 1)
    vm.expect("shutoff/never-started")
    equal(vm.define()["generation"], 1, "generation after an equal definition")
    record = vm.start()
    equal(record["status"], "succeeded")
    vm.expect("running/ok")
    info = vm.info()
    matches(info["qemu-version"], "^" + s.qemu.split(".")[0], "qemu-version")
    check(alive(info["pid"]), "no process has the pid that query-vm tells")
    check(info["running"] and info["uid"] == defined["uid"], "running, uid")
    vm.ready()
    unchanged(vm.start())

    before = vm.tick()
    vm.pause()
    vm.expect("paused/user")
    check(not vm.info()["running"], "running is true while paused")
    vm.silent()
    unchanged(vm.pause())
    vm.resume()
    vm.expect("running/ok")
    vm.went_on(before)
    unchanged(vm.resume())

    nonce, mark = vm.nonce, vm.mark()
    s.client.cmd("vm-reset", name="vm")
    vm.line(r"^READY nonce=", mark=mark)
    check(vm.ready(mark) != nonce, "the guest was not booted anew")
    vm.quit()
    vm.expect("shutoff/quit")
    unchanged(vm.quit())


def test_start_paused(s):
    vm = s.vm()
    vm.define()
    vm.start(paused=True)
    vm.expect("paused/starting")
    vm.silent()
    vm.resume()
    vm.ready()
    vm.expect("running/ok")


@version
def test_guest_shutdown_is_seen(s):
    vm = s.boot()
    events = s.connect()
    vm.send("poweroff")
    vm.wait_state("shutoff/guest-shutdown")
    events.event("VM_STATE", lambda data: data["reason"] == "guest-shutdown")
    vm.start()
    vm.expect("running")


@version
def test_panic_is_seen(s):
    vm = s.boot()
    events = s.connect()
    vm.send("panic")
    events.event("VM_GUEST_PANICKED", lambda data: data["vm"] == "vm")
    poll(lambda: vm.state() in ("shutoff/guest-panicked", "paused/guest-panicked"), 10,
         f"guest-panicked (now {vm.state()})")


@version
def test_powerdown(s):
    vm = s.boot()
    record = vm.powerdown()
    equal(record["status"], "succeeded")
    vm.expect("shutoff/powerdown")
    check(vm.info()["pid"] is None, "a pid is told")
    unchanged(vm.powerdown())


def test_powerdown_is_pressed_again(s):
    vm = s.boot()
    vm.ask("deaf on")
    mark = vm.mark()
    operation = s.client.cmd("vm-powerdown", name="vm", timeout=40)["operation"]
    vm.line(r"^BUTTON n=1 ignored", 10, mark)
    first = time.monotonic()
    vm.line(r"^BUTTON n=2 ignored", 10, mark)
    again = time.monotonic() - first
    check(3.5 < again < 7.5, f"pressed again after {again:.1f} s, not 5 s")
    vm.ask("deaf off")
    record = s.client.cmd("operation-wait", id=operation, seconds=60)
    equal(record["status"], "succeeded")
    vm.expect("shutoff/powerdown")


def test_powerdown_of_a_deaf_guest(s):
    vm = s.boot()
    vm.ask("deaf on")
    error = s.client.err("vm-powerdown", "Timeout", name="vm", timeout=2, wait=True)
    equal(error.data["record"]["status"], "failed")
    vm.expect("running/ok")
    vm.tick()
    s.client.cmd("vm-powerdown", name="vm", timeout=2, wait=True, on_timeout="quit")
    vm.expect("shutoff")
    check(vm.info()["pid"] is None, "a pid is told")


def test_monitor(s):
    vm = s.boot()
    equal(vm.monitor("query-status")["status"], "running")
    matches(s.client.cmd("vm-monitor", name="vm", execute="human-monitor-command",
                         arguments={"command-line": "info version"}), r"^\d+\.\d+")
    for command, use in (("quit", "vm-quit"), ("stop", "vm-pause"), ("cont", "vm-resume"),
                         ("system_reset", "vm-reset"), ("migrate", "vm-hibernate"),
                         ("set-action", None), ("migrate-set-capabilities", None),
                         ("snapshot-save", None), ("blockdev-snapshot-sync", None),
                         ("blockdev-mirror", None), ("block-commit", None), ("block-stream", None),
                         ("transaction", None), ("dump-guest-memory", None), ("getfd", None),
                         ("closefd", None), ("add-fd", None), ("qmp_capabilities", None)):
        error = s.client.err("vm-monitor", "InvalidState", name="vm", execute=command)
        check("use" in error.data, f"{command}: no data.use")
        if use:
            equal(error.data["use"], use, f"use for {command}")
    s.client.err("vm-monitor", "InvalidState", name="vm", execute="human-monitor-command",
                 arguments={"command-line": "stop"})
    error = s.client.err("vm-monitor", "QemuError", name="vm", execute="query-nonsense")
    check("query-nonsense" in error.desc, error.desc)
    equal(vm.monitor("query-status")["status"], "running")
    vm.tick()


@version
def test_killed_qemu_is_a_crash(s):
    vm = s.boot()
    events = s.connect()
    os.kill(vm.info()["pid"], signal.SIGKILL)
    vm.wait_state("crashed")
    info = vm.info()
    equal(info["reason"] in ("signal", "oom-killed"), True, f"reason {info['reason']}")
    equal(info["last-exit"]["signal"], 9, f"last-exit {info['last-exit']}")
    events.event("VM_STATE", lambda data: data["state"] == "crashed")
    s.client.err("vm-hibernate", "InvalidState", name="vm", wait=True)
    s.client.err("vm-pause", "InvalidState", name="vm")
    nonce, mark = vm.nonce, vm.mark()
    vm.start()
    check(vm.ready(mark) != nonce, "the same boot after a crash")
    os.kill(vm.info()["pid"], signal.SIGKILL)
    vm.wait_state("crashed")
    vm.quit()
    vm.expect("shutoff/quit")


def test_daemon_restart_adopts(s):
    vm = s.boot()
    pid, before, uid = vm.info()["pid"], vm.tick(), vm.info()["uid"]
    for kill in (False, True):
        s.daemon.restart(kill=kill)
        vm.wait_state("running/ok")
        equal(vm.info()["pid"], pid, "pid after a restart of torpord")
        equal(vm.info()["uid"], uid, "uid")
        before = vm.went_on(before)
    vm.pause()
    s.daemon.restart(kill=True)
    vm.wait_state("paused/user")
    vm.silent()
    vm.resume()
    vm.hibernate()
    vm.restore()
    vm.went_on(before)


def test_qemu_ends_while_the_daemon_is_away(s):
    vm = s.boot()
    pid = vm.info()["pid"]
    s.daemon.kill()
    os.kill(pid, signal.SIGKILL)
    poll(lambda: not alive(pid), 5)
    s.daemon.expected_death = False
    s.daemon.start()
    vm.wait_state("crashed")
    vm.start()
    vm.expect("running/ok")


def begin_saving(s, vm):
    events = s.connect()
    s.client.send("vm-hibernate", name="vm", level=12, threads=1, wait=True)
    events.event("OPERATION", lambda data: data["phase"] == "Saving")


def goes_on_after_a_restart(s, vm, before):
    s.daemon.start()
    poll(lambda: vm.info()["operation"] is None, 40, "the end of the operation")
    poll(lambda: vm.state() in ("running/ok", "hibernated/save"), 20, "a good state")
    if vm.info()["state"] == "hibernated":
        vm.restore()
    vm.went_on(before)
    vm.ask("verify")


def test_orderly_end_while_saving(s):
    vm = s.boot()
    vm.fill(64, "mixed")
    before = vm.tick()
    begin_saving(s, vm)
    s.daemon.process.send_signal(signal.SIGTERM)
    equal(s.daemon.process.wait(40), 0, "torpord's exit status")
    goes_on_after_a_restart(s, vm, before)


def test_hurried_end_while_saving(s):
    """A second SIGTERM ends torpord at once: while a roll-back cannot end, and a client waits."""
    vm = s.boot()
    vm.fill(64, "mixed")
    before, pid = vm.tick(), vm.info()["pid"]
    begin_saving(s, vm)
    os.kill(pid, signal.SIGSTOP)
    try:
        s.daemon.process.send_signal(signal.SIGTERM)
        poll(lambda: "ending; VMs go on" in s.daemon.log(), 10)
        s.daemon.process.send_signal(signal.SIGTERM)
        equal(s.daemon.process.wait(20), 1, "torpord's exit status")
        s.daemon.process.returncode = 0
    finally:
        os.kill(pid, signal.SIGCONT)
    goes_on_after_a_restart(s, vm, before)


def test_a_second_daemon_is_refused(s):
    s.start()
    other = s.new_daemon(s.dir)
    other.log_path = s.path("second.log")
    try:
        other.start()
    except AssertionError:
        pass
    equal(other.process.returncode, 1, "status of the second torpord")
    other.expected_death = True
    check(str(s.daemon.pid) in other.log(), f"it does not name the first one's pid: {other.log()}")
    with Client(s.daemon.socket) as client:
        client.cmd("query-version")


@slow
def test_two_vms_at_once(s):
    vms = [s.vm(name) for name in ("one", "two")]
    for vm in vms:
        vm.define()
    starts = [s.client.cmd("vm-start", name=vm.name)["operation"] for vm in vms]
    for operation in starts:
        equal(s.client.cmd("operation-wait", id=operation)["status"], "succeeded")
    sums = []
    for vm in vms:
        vm.ready()
        sums.append(vm.fill(16))
    before = [vm.tick() for vm in vms]
    for verb, state in (("vm-hibernate", "hibernated/save"), ("vm-restore", "running/ok")):
        operations = [s.client.cmd(verb, name=vm.name)["operation"] for vm in vms]
        for operation in operations:
            record = s.client.cmd("operation-wait", id=operation, seconds=60)
            equal(record["status"], "succeeded", f"{verb} {record.get('error')}")
        for vm in vms:
            vm.expect(state)
    for vm, tick, sum_ in zip(vms, before, sums):
        vm.went_on(tick)
        vm.verify(sum_)


def test_undefine_leaves_nothing(s):
    vm = s.boot()
    s.client.err("vm-undefine", "InvalidState", name="vm")
    vm.hibernate()
    s.client.err("vm-undefine", ("InvalidState", "Exists", "Conflict"), name="vm")
    s.client.cmd("vm-undefine", name="vm", images="delete")
    s.client.err("query-vm", "NotFound", name="vm")
    check(os.path.exists(vm.disk), "the disk was deleted")
    equal(os.listdir(s.daemon.run), ["torpor.sock"], "the runtime folder")
    equal(os.listdir(s.daemon.pool), [".torpor-pool"], "the pool")
    equal(os.listdir(os.path.join(s.daemon.state, "vms")), [], "vms of the state folder")


def test_hooks_and_wrapper(s):
    script = s.path("hook")
    with open(script, "w", encoding="utf-8") as file:
        file.write('#!/bin/sh\necho "$1 $TORPOR_VM $TORPOR_REASON" >>"$0.log"\n'
                   '[ ! -e "$0.fail-$1" ] || { echo "no room at the inn"; exit 3; }\n')
    os.chmod(script, 0o700)
    vm = s.vm()
    names = ("prepare", "before-run", "after-run", "release")
    vm.spec["launch"]["hooks"] = {name: [script, name] for name in names}
    vm.spec["launch"]["wrapper"] = ["nice", "-n", "1"]
    vm.boot()
    with open(f"/proc/{vm.info()['pid']}/stat", encoding="ascii") as file:
        equal(file.read().rsplit(")", 1)[1].split()[16], "1", "nice value of QEMU")
    vm.hibernate()
    vm.restore()
    vm.tick()
    vm.quit()

    def told():
        with open(script + ".log", encoding="ascii") as file:
            return [line.split()[0] for line in file]

    poll(lambda: told() == list(names) * 2, 10, f"hooks {told()}")
    with open(script + ".fail-prepare", "w", encoding="ascii"):
        pass
    error = s.client.err("vm-start", "HookFailed", name="vm", wait=True)
    check("no room at the inn" in str(error), error)
    vm.expect("shutoff")


@version
def test_machine_pc(s):
    vm = s.boot(machine="pc")
    before, sum_ = vm.tick(), vm.fill(8)
    vm.hibernate()
    vm.restore()
    vm.went_on(before)
    vm.verify(sum_)
