# SPDX-License-Identifier: LGPL-2.1-or-later
"""A power cut at each sync of define, hibernate, restore, discard ...: always the old or the new.

All calls of torpord and its movers in state folder and pool are recorded (tests/fault/record.c), once.
Then for each moment between two syncs all disks are made that a cut may leave (lib/powercut.py), and an
engine is started on each different one, as after a reboot (tests/real/powercut_check.c).
"""

import json
import os
import shutil
import subprocess
import tempfile

from lib import Skip, check, deadline, slow
from lib.faultlib import Recording
from lib.powercut import Disk, digest, write_tree
from lib.tiny import TinyVm


class Engines:
    """Starts an engine on a tree and says what it found; each tree once."""

    def __init__(self, s):
        program = os.path.join(s.build, "tests", "real", "powercut_check")
        if not os.access(program, os.X_OK):
            raise Skip("powercut_check is not built (make test-programs)")
        top = "/dev/shm" if os.access("/dev/shm", os.W_OK) else s.dir
        self.dir = tempfile.mkdtemp(prefix="tr.", dir=top)
        s.at_end(lambda: shutil.rmtree(self.dir, ignore_errors=True))
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=None, text=True)
        self.known = {}

    def look(self, tree):
        key = digest(tree)
        if key not in self.known:
            folders = [os.path.join(self.dir, name) for name in ("state", "run", "pool")]
            for folder in folders:
                os.mkdir(folder, 0o700)
            write_tree(tree, (folders[0], folders[2]))
            self.process.stdin.write(" ".join(folders) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
            check(line, f"the engine died of {sorted(tree)}")
            found = json.loads(line)
            found["bad"] = [name for name in os.listdir(folders[0]) + self._names(folders[0])
                            if ".bad-" in name]
            found["left"] = self._names(folders[2])
            self.known[key] = found
            for folder in folders:
                shutil.rmtree(folder)
        return self.known[key]

    @staticmethod
    def _names(top):
        return [os.path.relpath(os.path.join(folder, name), top)
                for folder, _, names in os.walk(top) for name in names]

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)


# --- what may be found ---


def seen(found):
    """State and reason of the only VM, or "absent"; then the states of its images."""
    vms = [f"{vm['state']}/{vm['reason']}" for vm in found["vms"]]
    return (vms or ["absent"]) + sorted(image["state"] for image in found["images"])


STARTUP = "start-up"
SIMPLEST = 4        # all kept, none, the names without data, zeros for data
ABSENT = ["absent"]
NEW = ["shutoff/never-started"]
UNSTARTED = ["shutoff/start-failed"]
OFF = ["shutoff/host-reboot"]
ASLEEP = ["hibernated/save", "complete"]
USED = ["shutoff/host-reboot", "consumed"]
DROPPED = ["shutoff/discarded"]


def wrong(found, allowed):
    """What is wrong; None: nothing."""
    if "error" in found:
        return f"does not start: {found['error']}"
    if found["damage"]:
        return f"a damaged image is complete: {found['damage']}"
    if found["bad"]:
        return "a record was taken for damaged"
    if seen(found) not in allowed:
        return f"{seen(found)}, allowed is {allowed}"
    return None


# --- what was done ---


def journal(text):
    """The call that writes such a record."""
    return lambda call: call[0] == "write" and call[3].endswith("/op.log") and text in call[2]


def told(text):
    return lambda call: call[0] == "send" and text in call[2]


def journal_sync(call):
    return call[0] == "sync" and call[3].endswith("/op.log")


COMMIT = journal(b'"record":"commit"')
RAN = journal(b'"res":{"ran":true}')
CONT = told(b'"execute":"cont"')


class Story:
    """Verbs one after the other. Each has turns: from a certain call on, a cut may leave other things."""

    def __init__(self, s):
        self.recording = Recording(s)
        self.verbs = []

    def verb(self, name, run, first, *turns, after):
        """turns: (function that knows the call, what is allowed from then on); after: once the
        client was answered."""
        run()
        self.verbs.append((name, first, list(turns), after, self.recording.used()))

    def tell(self):
        """(call or None at an end, verb, what a cut after it may leave), of the whole recording."""
        calls = iter(self.recording.calls())
        used = 0
        for name, allowed, turns, after, end in self.verbs:
            for size, call in calls:
                used += size
                if turns and turns[0][0](call):
                    allowed = turns.pop(0)[1]
                yield call, name, allowed
                if used >= end:
                    break
            check(not turns, f"{name}: a turn never came")
            yield None, name, after


def cuts(story, roots):
    """(disk, verb, allowed) before and after each sync and each turn, and at the end of each verb."""
    disk = Disk(roots)
    before = None
    for call, name, allowed in story.tell():
        if call and call[0] == "send" and allowed is before:
            continue
        if before is not None and (call is None or call[0] == "sync"):
            yield disk, name, before
        if call:
            disk.call(*call)
        if call is None or call[0] == "sync" or allowed is not before:
            yield disk, name, allowed
        before = allowed
        if call is None and name == STARTUP:
            disk.settle()


class Judge:
    """Tries what cuts leave; says what was wrong, each kind of mistake once."""

    def __init__(self, s):
        self.engines = Engines(s)
        self.tried = set()
        self.mistakes = {}
        self.kinds = set()

    def look(self, tree, name, allowed, how):
        key = (digest(tree), id(allowed))
        if key in self.tried:
            return
        self.tried.add(key)
        found = self.engines.look(tree)
        mistake = wrong(found, allowed)
        if "vms" in found:
            self.kinds.add(" ".join(seen(found)))
        if mistake:
            self.mistakes.setdefault(f"{name}: {mistake}", (how, tree, found))

    def done(self):
        self.engines.close()
        print(f"{len(self.engines.known)} different disks, {len(self.tried)} judged: "
              + "; ".join(sorted(self.kinds)))
        for text, (how, tree, found) in self.mistakes.items():
            print(f"WRONG {text}\n  kept: {'; '.join(how[-6:])}\n  log: {found.get('log')}")
            for path in sorted(tree):
                said = tree[path][-200:] if path.endswith(("state.json", "op.log")) else ""
                print(f"  {path} {said}")
        check(not self.mistakes, f"{len(self.mistakes)} mistakes, e.g. {next(iter(self.mistakes), '')}")


def brief(change):
    return f"{change.kind} {str(change.what[:1])} {str(change.what[-1])[:60]}"


def try_cuts(s, story, share=1):
    """share: only one of so many disks of each moment, but always the simplest ones."""
    judge = Judge(s)
    for disk, name, allowed in cuts(story, (s.daemon.state, s.daemon.pool)):
        for index, kept in enumerate(disk.choices()):
            if index < SIMPLEST or index % share == 0:
                judge.look(disk.tree(kept), name, allowed, [brief(change) for change in kept])
    judge.done()


def life(s):
    """Defined, started, hibernated, restored, hibernated again, discarded, undefined."""
    story = Story(s)
    vm = TinyVm(s)
    story.verb(STARTUP, lambda: s.client, [ABSENT], after=[ABSENT])
    story.verb("define", vm.define, [ABSENT, NEW], after=[NEW])
    story.verb("start", lambda: vm.cmd("vm-start", wait=True), [NEW, UNSTARTED, OFF],
               (CONT, [UNSTARTED, OFF]), after=[OFF])
    hibernate(story, vm, [OFF])
    story.verb("restore", vm.restore, [ASLEEP], (RAN, [ASLEEP, USED, OFF]), (CONT, [USED, OFF]),
               after=[OFF])
    hibernate(story, vm, [OFF])
    story.verb("discard", lambda: vm.cmd("vm-discard"), [ASLEEP, DROPPED], after=[DROPPED])
    story.verb("undefine", lambda: vm.cmd("vm-undefine"), [DROPPED, ABSENT], after=[ABSENT])
    return story


def kept_life(s):
    """Restored with "keep", the kept image deleted; restored paused, resumed; undefined hibernated."""
    story = Story(s)
    vm = TinyVm(s)
    story.verb(STARTUP, lambda: (vm.start(), vm.hibernate()), [ABSENT, NEW, UNSTARTED, OFF, ASLEEP],
               after=[ASLEEP])
    story.verb("restore keep", lambda: vm.restore(keep=True), [ASLEEP], (RAN, [ASLEEP, USED]),
               (CONT, [USED]), after=[USED])
    image = vm.images()[0]["id"]
    story.verb("image-delete", lambda: s.client.cmd("image-delete", image=image), [USED, OFF],
               after=[OFF])
    hibernate(story, vm, [OFF])
    story.verb("restore paused", lambda: vm.restore(paused=True), [ASLEEP], after=[ASLEEP])
    story.verb("resume", lambda: vm.cmd("vm-resume"), [ASLEEP, USED, OFF], (CONT, [USED, OFF]),
               after=[USED, OFF])
    hibernate(story, vm, [OFF, USED], [ASLEEP, ASLEEP + ["consumed"]])
    story.verb("undefine", lambda: vm.cmd("vm-undefine", images="delete"),
               [ASLEEP, ASLEEP + ["consumed"], DROPPED, ABSENT], after=[ABSENT])
    return story


def hibernate(story, vm, before, asleep=None):
    asleep = asleep or [ASLEEP]
    story.verb("hibernate", vm.hibernate, before, (COMMIT, before + asleep), (journal_sync, asleep),
               after=asleep)


def test_power_cuts(s):
    """A part of them; all are slow."""
    try_cuts(s, life(s), share=16)


@slow
@deadline(600)
def test_all_power_cuts(s):
    try_cuts(s, life(s))


@slow
@deadline(600)
def test_all_power_cuts_with_kept_images(s):
    try_cuts(s, kept_life(s))
