# SPDX-License-Identifier: LGPL-2.1-or-later
"""torpor image info, verify, cat and map, and the independent reader, on images of a real QEMU."""

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml

from lib import check, equal, matches, version

READER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "format", "read-image.py")


def reader(*argv):
    done = subprocess.run([sys.executable, READER, *argv], capture_output=True, check=False,
                          timeout=120)
    check(done.returncode == 0, f"read-image.py: {done.stderr.decode()[-1000:]}")
    return done.stdout


def digest(*argv):
    """Of what a program writes; the programs here write a guest's memory."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as program:
        value = hashlib.sha256()
        for piece in iter(lambda: program.stdout.read(1 << 20), b""):
            value.update(piece)
    equal(program.returncode, 0, argv)
    return value.hexdigest()


def hibernated(s, name="vm"):
    """A VM that has just been hibernated, its image's id and file."""
    vm = s.boot(name)
    vm.fill()
    vm.hibernate()
    return vm, vm.images()[0]["id"], vm.image_file()


def info_is_right(info, vm, image):
    equal(info["state"], "complete")
    equal(info["problems"], [])
    equal((info["consumed"], info["verified"], info["moving"]), (None, None, None))
    equal((info["manifest"]["vm"], info["manifest"]["image"]), (vm.name, image))
    for block in info["blocks"]:
        pages = block["pages-data"] + block["pages-zero"] + block["pages-absent"]
        equal(pages * info["page-size"], block["bytes"], block["id"])
    equal([(b["id"], b["bytes"]) for b in info["blocks"]],
          [(b["id"], b["bytes"]) for b in info["manifest"]["ram"]["blocks"]])
    for what in ("data", "zero"):
        equal(sum(b["pages-" + what] for b in info["blocks"]), info["pages-" + what], what)


def reader_agrees(info, file):
    lines = reader(file).decode().splitlines()
    equal(lines[:-1], [f"{b['id']}: {b['bytes'] // 4096} pages, {b['pages-data']} data, "
                       f"{b['pages-zero']} zero, {b['pages-absent']} not sent"
                       for b in info["blocks"]])
    equal(lines[-1], f"good: {info['frames']} frames, {info['raw-bytes']} bytes of stream")


def picture_is_right(s, info, what):
    root = xml.fromstring(s.torpor("image", "map", what, "--svg", "-").stdout)
    words = root.find("{http://www.w3.org/2000/svg}desc").text
    for block in info["blocks"]:
        check(block["id"] in words, f"{block['id']} is not in the picture's description")
    text = s.torpor("image", "map", what).stdout
    check(text.isascii() and "compresses well" in text, "map without a terminal")


@version
def test_image_is_read_by_all_who_may(s):
    """By its file and by its id, by torpor, zstd and a reader that knows only the document."""
    vm, image, file = hibernated(s)
    info = json.loads(s.torpor("image", "info", file, "--json").stdout)
    info_is_right(info, vm, image)
    text = s.torpor("image", "info", image).stdout
    for part in (f"vm        {vm.name} (uid ", "consumed  no", "verified  never", "pc.ram"):
        check(part in text, f"{part!r} is not in {text}")
    reader_agrees(info, file)
    equal(len(reader(file, "pc.ram", "256")), 4096)
    equal(digest(os.path.join(s.build, "torpor"), "image", "cat", file),
          digest("zstd", "-dc", file))
    check(": good: " in s.torpor("image", "verify", file).stdout, "verify of a file")
    picture_is_right(s, info, image)
    vm.restore()
    vm.verify()


def break_frames(s, source, frames):
    """A copy with some frames damaged; its path and the table of frames."""
    copy = s.path("damaged.zst")
    shutil.copy(source, copy)
    with open(copy, "r+b") as file:
        for at in frames:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 0x55]))
    return copy


def test_damage_is_named_and_salvaged(s):
    """Each of several damages with its pages; the rest of the stream comes out, byte for byte."""
    vm, image, file = hibernated(s)
    size = os.path.getsize(file)
    copy = break_frames(s, file, [size // 4, size // 2, size * 3 // 4])
    error = json.loads(s.torpor("image", "verify", copy, "--json", status=1).stdout)
    equal(error["class"], "Corrupt")
    damage = error["data"]["damage"]
    equal((len(damage), error["data"]["damaged"]), (3, 3))
    for one, at in zip(damage, [size // 4, size // 2, size * 3 // 4]):
        check(one["offset"] <= at < one["offset"] + one["length"], one)
        check(one["block"] and one["lost"] > 0 and one["pages"] >= one["lost"], one)
    text = s.torpor("image", "verify", copy, file, status=6)
    for part in ("FRAME", damage[1]["block"], str(damage[1]["offset"]), "image cat --salvage"):
        check(part in text.stdout, f"{part!r} is not in {text.stdout}")
    salvaged(s, file, copy, damage)
    torpord_finds_the_same(s, vm, image, file, copy, damage)


def load_reader():
    spec = importlib.util.spec_from_file_location("read_image", READER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def salvaged(s, file, copy, damage):
    """The stream without the frames that are damaged: by the index of the good image."""
    done = subprocess.run([os.path.join(s.build, "torpor"), "image", "cat", "--salvage", copy],
                          capture_output=True, check=False, timeout=120)
    equal(done.returncode, 6, done.stderr)
    good = load_reader().Image(file)
    lost = {one["frame"] for one in damage}
    wanted = b"".join(good.stream[at:at + size]
                      for i, ((_, at), size) in enumerate(zip(good.places, good.raw))
                      if i not in lost)
    check(done.stdout == wanted, f"{len(done.stdout)} bytes salvaged, not {len(wanted)} others")
    said = done.stderr.decode()
    check(f"{len(damage)} of " in said and f"{damage[0]['block']}: lost " in said, said)


def torpord_finds_the_same(s, vm, image, file, copy, damage):
    shutil.copyfile(copy, file)
    done = s.torpor("image", "verify", image, "--json", status=1)
    error = json.loads(done.stdout)
    equal(error["class"], "Corrupt")
    equal([(d["frame"], d["offset"]) for d in error["data"]["damage"]],
          [(d["frame"], d["offset"]) for d in damage])
    info = s.torpor("image", "info", image, status=1).stdout
    check("3 damaged places found" in info, f"what verified.json says: {info}")
    matches(info, r"(?m)^format .*, corrupt$")
    matches(s.torpor("image", "map", image, status=1).stderr, "last verification found 3 damaged places")
    s.client.cmd("vm-discard", name=vm.name)
