# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a power cut may leave of recorded file calls.

Theory of operation. A file has its durable content and a list of changes since its last sync, a folder
its durable entries and a list of those; only a sync of the very file or folder makes its own changes
durable (a file's entry in its folder is the folder's). A power cut keeps any of the pending changes:
of all subsets those are made that find mistakes: none, all, each one alone, all but each one, each
beginning of the list (also with its last write torn in half), and all names with the data of files
that were not synced lost, or zeros in its place. A rename is one change: it happened or it did not.
"""

import hashlib
import os

TRUNCATED, ZEROS = "truncated", "zeros"


class File:
    def __init__(self):
        self.data = b""


class Folder:
    def __init__(self):
        self.names = {}


class Change:
    """One that is pending: of a file's data, or of a folder's names."""

    def __init__(self, inode, kind, *what):
        self.inode = inode
        self.kind = kind
        self.what = what

    def half(self):
        """Torn; None: it is not such a change."""
        if self.kind != "write" or len(self.what[1]) < 2:
            return None
        at, data = self.what
        return Change(self.inode, "write", at, data[:len(data) // 2])

    def zeros(self):
        if self.kind != "write":
            return self
        at, data = self.what
        return Change(self.inode, "write", at, bytes(len(data)))

    def is_data(self):
        return isinstance(self.inode, File)


def applied_data(data, change):
    at = change.what[0]
    if change.kind == "write":
        more = change.what[1]
        return data[:at].ljust(at, b"\0") + more + data[at + len(more):]
    if change.kind == "truncate":
        return data[:at].ljust(at, b"\0")
    return data.ljust(at, b"\0")


def apply_names(names, change):
    if change.kind == "add":
        names[change.what[0]] = change.what[1]
    elif change.kind == "remove":
        names.pop(change.what[0], None)
    else:
        old, new, inode = change.what
        if names.get(old) is inode:
            del names[old]
        names[new] = inode


class Disk:
    """Follows a recording; `roots` are the recorded folders."""

    def __init__(self, roots):
        self.roots = {root: Folder() for root in roots}
        self.pending = []

    # --- what the programs see ---

    def names(self, folder):
        names = dict(folder.names)
        for change in self.pending:
            if change.inode is folder:
                apply_names(names, change)
        return names

    def find(self, path):
        """The inode at path; None: there is none, e.g. it was removed while it was open."""
        for root, inode in self.roots.items():
            if path == root:
                return inode
            if path.startswith(root + "/"):
                for name in path[len(root) + 1:].split("/"):
                    if name != ".":
                        inode = self.names(inode).get(name) if isinstance(inode, Folder) else None
                return inode
        return None

    def parent(self, path):
        folder, name = os.path.split(path)
        return self.find(folder), name

    # --- the calls ---

    def call(self, call, at, data, path, other):
        if call in ("create", "mkdir"):
            if path not in self.roots:
                folder, name = self.parent(path)
                self._add(folder, "add", name, File() if call == "create" else Folder())
        elif call in ("unlink", "rmdir"):
            folder, name = self.parent(path)
            self._add(folder, "remove", name)
        elif call == "rename":
            folder, name = self.parent(path)
            to, new = self.parent(other)
            assert folder is to, f"a rename from folder to folder: {path} {other}"
            self._add(folder, "rename", name, new, self.find(path))
        elif call == "write":
            self._add(self.find(path), call, at, data)
        elif call in ("truncate", "extend"):
            self._add(self.find(path), call, at)
        elif call == "sync":
            self._sync(self.find(path))

    def _add(self, inode, kind, *what):
        if inode is not None:
            self.pending.append(Change(inode, kind, *what))

    def _sync(self, inode):
        for change in self.pending:
            if change.inode is inode:
                if change.is_data():
                    inode.data = applied_data(inode.data, change)
                else:
                    apply_names(inode.names, change)
        self.pending = [change for change in self.pending if change.inode is not inode]

    def settle(self):
        """Everything is durable: the kernel writes back what nobody syncs, too, after a while."""
        for change in list(self.pending):
            self._sync(change.inode)

    # --- what a cut leaves ---

    def choices(self):
        """Lists of the changes that were kept."""
        changes = self.pending
        names = [change for change in changes if not change.is_data()]
        yield from (changes, [], names, [change.zeros() for change in changes])
        for index, change in enumerate(changes):
            before = changes[:index]
            yield before + [change]
            if change.half():
                yield before + [change.half()]
            yield [change]
            yield before + changes[index + 1:]

    def _cut_short(self, kept):
        """What was written behind the lost shortening of a file: into blocks that it does not have."""
        lost, short = set(), set()
        for change in self.pending:
            if change.kind == "truncate" and change not in kept:
                short.add(change.inode)
            elif change.inode in short:
                lost.add(change)
        return lost

    def tree(self, kept):
        """{path: content, or None of a folder}, as it is when these changes were kept."""
        data, names = {}, {}
        lost = self._cut_short(kept)
        for change in kept:
            inode = change.inode
            if change in lost:
                continue
            if change.is_data():
                data[inode] = applied_data(data.get(inode, inode.data), change)
            else:
                apply_names(names.setdefault(inode, dict(inode.names)), change)
        tree = {}

        def add(path, inode):
            if isinstance(inode, File):
                tree[path] = data.get(inode, inode.data)
                return
            tree[path] = None
            for name, child in names.get(inode, inode.names).items():
                add(f"{path}/{name}", child)

        for index, root in enumerate(self.roots.values()):
            add(str(index), root)
        return tree


def digest(tree):
    total = hashlib.blake2b(digest_size=16)
    for path in sorted(tree):
        content = tree[path]
        total.update(f"{path}\0{-1 if content is None else len(content)}\0".encode())
        if content:
            total.update(content)
    return total.digest()


def write_tree(tree, folders):
    """Makes it below the given folders, one for each root, which are empty."""
    for path in sorted(tree):
        index, _, rest = path.partition("/")
        full = os.path.join(folders[int(index)], rest) if rest else folders[int(index)]
        if tree[path] is None:
            os.makedirs(full, mode=0o700, exist_ok=True)
        else:
            with open(full, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
                file.write(tree[path])
