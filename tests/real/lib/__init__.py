# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the scenarios in tests/real are written with; see tests/real/README.md."""

from .client import Client, TorporError
from .guest import Vm
from .proc import Daemon
from .scenario import (Failure, Scenario, Skip, check, deadline, equal, matches, poll, slow, tag,
                       unchanged, version)

__all__ = ["Client", "Daemon", "Failure", "Scenario", "Skip", "TorporError", "Vm", "check",
           "deadline", "equal", "matches", "poll", "slow", "tag", "unchanged", "version"]
