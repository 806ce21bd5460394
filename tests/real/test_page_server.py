# SPDX-License-Identifier: LGPL-2.1-or-later
"""The page server against a real QEMU, driven by hand: a lazy restore without torpord."""

import os
import shutil
import signal

from lib import check, equal, matches, slow, version
from lib.faults import qemu_pids
from lib.pages import Server, arguments_of, restoring


def saved(s, fill=48, kind="mixed", **options):
    """A VM that was hibernated by torpord: (vm, its QEMU's arguments, image, last tick, sum)."""
    vm = s.boot(agent=False, **options)
    arguments = arguments_of(qemu_pids()[0])
    total = vm.fill(fill, kind)
    vm.hibernate()
    return vm, arguments, vm.image_file(), vm.last_tick(), total


@version
def test_lazily_restored(s):
    """Held before the devices are given; then the guest goes on, and all of its memory comes."""
    vm, arguments, image, before, total = saved(s)
    with restoring(s, vm, arguments, image, hold=True) as (qemu, server):
        server.state("held")
        equal(qemu.qmp("query-status")["status"], "inmigrate", "QEMU while held")
        # The engine is replaced meanwhile; who came first is disconnected.
        first = server.sock.dup()
        hello = server.reconnect()
        equal(hello["pages"]["state"], "held")
        equal(first.recv(1), b"", "what the former engine gets")
        first.close()
        server.send({"finish": {}})
        server.state("serving")
        equal(qemu.qmp("query-status")["status"], "paused", "QEMU with its devices")
        vm.silent(0.3)
        qemu.qmp("cont")
        vm.went_on(before)
        done = server.expect("done")
        equal(server.wait(), 0, "status of the page server")
        qemu.completed()
        vm.verify(total)
    equal(done["pages-left"], 0)
    equal(done["pages-sent"], done["pages"])
    check(done["requests"] > 0, f"nothing was asked for: {done}")
    ranges = [message for message in server.messages if "working-set" in message]
    equal(len(ranges), 1, "working sets")
    check("pc.ram" in ranges[0]["working-set"]["blocks"], f"blocks: {ranges}")


def another(s, qemu, image, **request):
    """A page server for a QEMU whose one is gone."""
    qemu.event("MIGRATION", status="postcopy-paused")
    # All is prepared before QEMU hears of it: QEMU 7.2 does not survive a half of it.
    server = Server(s, image, qemu.folder, recover=True, **request)
    server.state("waiting")
    with qemu.recover() as stream:
        server.send({"stream": {}}, [stream.fileno()])
    return server


def killed(s, times, bandwidth):
    vm, arguments, image, before, total = saved(s)
    with restoring(s, vm, arguments, image, bandwidth=bandwidth) as (qemu, server):
        server.state("serving")
        qemu.qmp("cont")
        vm.went_on(before)
        for _ in range(times):
            os.kill(server.pid, signal.SIGKILL)
            server = another(s, qemu, image, bandwidth=bandwidth)
            sent = server.state("serving")["pages-sent"]
            check(sent > 0, "nothing is known to have come")
            qemu.event("MIGRATION", status="postcopy-active")
            vm.tick()
        server.send({"bandwidth": 0})
        done = server.expect("done")
        qemu.completed()
        vm.verify(total)
        equal(done["pages-left"], 0)
        check(done["pages-sent"] == done["pages"], f"pages: {done}")


@version
def test_page_server_killed(s):
    """Killed twice in the middle: another one goes on where it was."""
    killed(s, 2, 4 << 20)


@version
@slow
def test_page_server_killed_ten_times(s):
    killed(s, 10, 1 << 20)


@version
def test_on_demand(s):
    """With hardly any background the guest works by what it asks for; then the rest comes."""
    vm, arguments, image, before, total = saved(s, kind="random")
    with restoring(s, vm, arguments, image, bandwidth=64 << 10) as (qemu, server):
        server.state("serving")
        qemu.qmp("cont")
        vm.went_on(before)
        vm.verify(total)
        status = server.ask()
        equal(qemu.migration(), "postcopy-active")
        check(status["state"] == "serving" and status["pages-left"] > 0, f"status: {status}")
        # 48 MiB went by request: a request brings at most its frame's 64 pages with it.
        check(status["requests"] >= 48 * 256 / 64, f"requests: {status}")
        check(0 < status["latency-p50-us"] <= status["latency-p99-us"], f"latency: {status}")
        # Commands act at once meanwhile.
        qemu.qmp("stop")
        qemu.qmp("cont")
        server.send({"bandwidth": 0})
        equal(server.expect("done")["pages-left"], 0)
        qemu.completed()
        vm.verify(total)
        vm.went_on(before)


def task(qemu, server, vm, before, total):
    """Requests that a task in the guest costs; hardly anything comes by itself meanwhile."""
    server.send({"bandwidth": 64 << 10})
    earlier = server.ask()["requests"]
    server.send({"running": {}})
    qemu.qmp("cont")
    vm.went_on(before)
    vm.verify(total)
    return server.ask()["requests"] - earlier


def test_working_set(s):
    """What a guest touched first is sent first next time: the same task asks for little of it."""
    vm, arguments, image, before, total = saved(s, 24, "random")
    with restoring(s, vm, arguments, image, bandwidth=64 << 10) as (qemu, server):
        server.state("serving")
        without = task(qemu, server, vm, before, total)
        server.send({"bandwidth": 0})
        working_set = server.expect("working-set")
        equal(server.expect("done")["working-set-pages"], 0)
    pages = sum(count for _, _, count in working_set["ranges"])
    check(24 * 256 <= pages and len(working_set["ranges"]) < without, f"{pages}: {working_set}")
    # What makes no sense does no harm.
    working_set["blocks"].append("gone")
    working_set["ranges"][:0] = [[len(working_set["blocks"]) - 1, 0, 1], [77, 0, 1], [0, 1 << 40, 1],
                                 [0, 0, -1], ["x"], 7]
    with restoring(s, vm, arguments, image, bandwidth=32 << 20,
                   **{"working-set": working_set}) as (qemu, server):
        server.state("serving")
        status = server.progress
        while not status or status["working-set-left"]:
            status = next(iter(server.receive().values()))
        check(0 < status["working-set-pages"] <= status["pages-sent"] < 0.8 * status["pages"],
              f"status: {status}")
        given = task(qemu, server, vm, before, total)
        server.send({"bandwidth": 0})
        equal(server.expect("done")["pages-left"], 0)
        qemu.completed()
        vm.verify(total)
    check(given < without / 4, f"{without} requests without a working set, {given} with it")


@slow
def test_stopped_page_server(s):
    """It ends when told to, and leaves QEMU waiting for another."""
    vm, arguments, image, before, total = saved(s, 16)
    with restoring(s, vm, arguments, image, bandwidth=64 << 10) as (qemu, server):
        server.state("serving")
        qemu.qmp("cont")
        vm.went_on(before)
        server.send({"stop": {}})
        check(server.expect("done")["pages-left"] > 0, "all came")
        equal(server.wait(), 0, "status of the page server")
        another(s, qemu, image).expect("done")
        vm.verify(total)


def test_damaged_image(s):
    """What is damaged is named and never sent: QEMU waits for it, the guest sees nothing wrong."""
    vm, arguments, image, before, _ = saved(s, kind="random")
    bad = os.path.join(s.dir, "damaged.zst")
    shutil.copyfile(image, bad)
    with open(bad, "r+b") as file:
        file.seek(os.path.getsize(bad) // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0xff]))
    with restoring(s, vm, arguments, bad) as (qemu, server):
        server.state("loading")
        error = None
        while error is None:
            error = server.receive().get("error")
        equal(error["class"], "Corrupt")
        matches(error["desc"], r"frame \d+")
        damage = error["damage"][0]
        equal(damage["block"], "pc.ram")
        check(damage["pages"] > 0 and damage["lost"] > 0, f"damage: {damage}")
        check(error["pages"]["pages-left"] >= damage["lost"], f"pages: {error}")
        equal(server.wait(), 1, "status of the page server")
        qemu.event("MIGRATION", status="postcopy-paused")
    # The image itself is as good as it was.
    with restoring(s, vm, arguments, image) as (qemu, server):
        server.state("serving")
        qemu.qmp("cont")
        vm.went_on(before)
        server.expect("done")
