# SPDX-License-Identifier: LGPL-2.1-or-later
"""Paths, waiting and assertions."""

import os
import re
import time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
BUILD = os.path.abspath(os.environ.get("TORPOR_BUILD", os.path.join(TOP, "build")))
POLL_SECONDS = 0.02


class Failure(AssertionError):
    """A scenario found something that is not as it must be."""


class Skip(Exception):
    """The machine lacks what the scenario needs; the text says what."""


class Late(Failure):
    """The scenario's deadline passed."""


def check(condition, text):
    if not condition:
        raise Failure(text)


def equal(is_, want, what=""):
    if is_ != want:
        raise Failure(f"{what or 'value'} is {is_!r}, not {want!r}")


def matches(text, pattern, what="text"):
    found = re.search(pattern, text or "")
    if not found:
        raise Failure(f"{what} does not match {pattern!r}: {text!r}")
    return found


def unchanged(reply):
    """Fails unless a verb said that its goal held already."""
    check(reply.get("unchanged") or reply.get("result", {}).get("unchanged"),
          f"not said to be unchanged: {reply}")


def poll(condition, seconds=20, what="the condition", every=POLL_SECONDS):
    """The first true value of condition(); fails when there was none in time."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"{what} did not come true within {seconds} s")
        time.sleep(every)


def qemu_program(version, name="qemu-system-x86_64"):
    return os.path.join(BUILD, "qemu", version, name)
