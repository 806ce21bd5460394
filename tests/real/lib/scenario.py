# SPDX-License-Identifier: LGPL-2.1-or-later
"""One scenario: its folder, its torpord, its VMs, and what must be left of them: nothing."""

import os
import signal
import subprocess

from .base import (Failure, Late, Skip, check, equal, matches, poll,  # noqa: F401
                   qemu_program, unchanged)
from .client import Client, TorporError
from .guest import Vm
from .proc import Daemon, alive, descendants, kill_descendants

DEADLINE = 150


def tag(*names):
    """Marks a scenario with tags."""
    def mark(function):
        function.tags = getattr(function, "tags", frozenset()) | set(names)
        return function
    return mark


version = tag("version")    # what QEMU does matters: runs with each version
slow = tag("slow")          # only with --slow


def deadline(seconds):
    """Another deadline than DEADLINE."""
    def mark(function):
        function.deadline = seconds
        return function
    return mark


class Scenario:
    """What a test function gets. `daemon` is started at first use of `client`."""

    def __init__(self, options, folder, shared):
        self.options = options
        self.build = options.programs
        self.qemu = options.qemu
        self.machine = options.machine
        self.dir = folder
        self.shared = shared
        self.vms = []
        self.clients = []
        self.cleanups = []
        self.daemons = []
        self.daemon = self.new_daemon(folder)
        self.baseline = None
        self._client = None
        self.leave_vms = False      # set when VMs are expected to be in no state to be removed

    # --- making things ---

    def new_daemon(self, folder, **options):
        daemon = Daemon(self.build, folder, **options)
        self.daemons.append(daemon)
        return daemon

    def start(self, env=None):
        """Starts the daemon; only needed to give it an environment."""
        self.daemon.start(env)
        if self.baseline is None:
            with Client(self.daemon.socket) as client:
                client.cmd("query-pools")
            self.baseline = self.daemon.descriptors()
        return self.daemon

    def connect(self, negotiate=True):
        client = Client(self.daemon.socket, negotiate)
        self.clients.append(client)
        return client

    @property
    def client(self):
        """A connection that is made anew after a restart of the daemon."""
        if not self.daemon.running():
            if self.daemon.process is not None:
                raise Failure("torpord is not running")
            self.start()
        if self._client is not None:
            self._client.drain()
        if self._client is None or self._client.ended:
            self._client = self.connect()
        return self._client

    def vm(self, name="vm", **options):
        """A VM with the test guest, not yet defined."""
        vm = Vm(self, name, **options)
        self.vms.append(vm)
        return vm

    def boot(self, name="vm", **options):
        """A VM whose guest is ready and ticks."""
        vm = self.vm(name, **options)
        vm.boot()
        return vm

    def rows(self, some, others):
        """Rows of a scenario: some of them, and with --slow the others as well."""
        return tuple(some) + (tuple(others) if self.options.slow else ())

    def at_end(self, function):
        self.cleanups.append(function)

    def path(self, name):
        return os.path.join(self.dir, name)

    def torpor(self, *args, status=0, seconds=120, **options):
        """Runs the client program; its CompletedProcess."""
        program = os.path.join(self.build, "torpor")
        if not os.path.exists(program):
            raise Skip("torpor is not built")
        done = subprocess.run([program, "--socket", self.daemon.socket, *args], timeout=seconds,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False, **options)
        if status is not None and done.returncode != status:
            raise Failure(f"torpor {' '.join(args)}: status {done.returncode}, not {status}: "
                          f"{done.stdout[-1000:]}{done.stderr[-1000:]}")
        return done

    def qemu_io(self, vm, command):
        """One qemu-io command on a VM's disk, behind torpor's back."""
        subprocess.run([qemu_program(vm.version, "qemu-io"), "-f", "qcow2", "-c", command, vm.disk],
                       check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)

    def tmpfs(self, name, size):
        """A small file system of its own; unmounted at the end."""
        folder = self.path(name)
        os.makedirs(folder, exist_ok=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", folder],
                              capture_output=True, text=True, check=False)
        if done.returncode:
            raise Skip(f"tmpfs cannot be mounted here: {done.stderr.strip()}")
        self.at_end(lambda: subprocess.run(["umount", "-l", folder], check=False))
        return folder

    # --- the end ---

    def _remove_vm(self, client, name):
        client.cmd("vm-quit", name=name, seconds=30)
        if client.cmd("query-vm", name=name)["state"] == "lost":
            client.cmd("vm-resolve", name=name, owner="nobody")
        client.cmd("vm-undefine", name=name, images="delete")

    def _left_files(self):
        """Files that should not be there once all VMs are gone."""
        left = []
        daemon = self.daemon
        for top in [daemon.run, *daemon.pools.values(), os.path.join(self.dir, "tmp"),
                    os.path.join(daemon.state, "vms")]:
            for folder, _, names in os.walk(top):
                left += [os.path.join(folder, name) for name in names
                         if name not in (".torpor-pool", "torpor.sock")]
                if folder != top:
                    left.append(folder)
        return left

    def _check_descriptors(self):
        def same():
            return len(self.daemon.descriptors()) <= len(self.baseline)

        try:
            poll(same, 3)
        except Failure:
            now = self.daemon.descriptors()
            for entry in self.baseline:
                if entry in now:
                    now.remove(entry)
            raise Failure(f"torpord has open more than at its start: {now}") from None

    def verify_nothing_left(self):
        """Removes all VMs through the API; then no file, process or descriptor may be left."""
        if self.daemon.process is None:
            return
        self.daemon.check_death()
        if not self.daemon.running():
            return
        for client in self.clients:
            client.close()
        for vm in self.vms:
            vm.close()
        if self.leave_vms:
            return
        with Client(self.daemon.socket) as client:
            for info in client.cmd("query-vms"):
                self._remove_vm(client, info["name"])
        left = descendants(self.daemon.pid)
        if left:
            try:
                poll(lambda: not descendants(self.daemon.pid), 5)
            except Failure:
                raise Failure(f"processes are left: {left}") from None
        self._check_descriptors()
        files = self._left_files()
        check(not files, f"files are left: {files[:8]}")

    def finish(self, good):
        """Ends everything. With `good`, fails if something is left or went wrong unseen."""
        error = None
        try:
            if good:
                self.verify_nothing_left()
                for daemon in self.daemons:
                    daemon.stop()
        except (Failure, TorporError, OSError, subprocess.SubprocessError) as failure:
            error = failure
        for daemon in self.daemons:
            if daemon.running():
                daemon.expected_death = True
                daemon.process.send_signal(signal.SIGKILL)
                daemon.process.wait()
        names = kill_descendants(os.getpid())
        for function in reversed(self.cleanups):
            function()
        for daemon in self.daemons:
            bad = daemon.bad_log()
            if bad and good:
                raise Failure(f"in torpord's log:\n{bad}")
        if error:
            raise error
        if good and names and not self.leave_vms:
            raise Failure(f"processes were left: {names}")


__all__ = ["Failure", "Late", "Scenario", "Skip", "alive", "check", "deadline", "equal", "matches",
           "poll", "slow", "tag", "unchanged", "version"]
