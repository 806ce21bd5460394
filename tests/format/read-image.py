#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""read-image.py - An independent reader of memory images, written from docs/image-format.md alone

usage: read-image.py FILE               check all of it, list the RAM blocks
       read-image.py FILE BLOCK PAGE    write that page, checked against `zstd -dc FILE`

Only the standard library and the program zstd. It is slow and holds the whole stream in memory: it
is here to prove that the document is enough, and that torpor writes what it says.
"""
import struct
import subprocess
import sys

M = (1 << 64) - 1
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
SKIPPABLE = 0x184D2A5D


def need(condition, text):
    if not condition:
        raise SystemExit(f"{sys.argv[1]}: {text}")


def xxh64(data):
    def rot(x, n):
        return (x << n | x >> (64 - n)) & M

    def turn(acc, lane):
        return rot(acc + lane * P2 & M, 31) * P1 & M

    at, n = 0, len(data)
    if n >= 32:
        acc = [P1 + P2 & M, P2, 0, -P1 & M]
        while at + 32 <= n:
            acc = [turn(a, lane) for a, lane in zip(acc, struct.unpack_from("<4Q", data, at))]
            at += 32
        h = rot(acc[0], 1) + rot(acc[1], 7) + rot(acc[2], 12) + rot(acc[3], 18) & M
        for a in acc:
            h = (h ^ turn(0, a)) * P1 + P4 & M
    else:
        h = P5
    h = h + n & M
    while at + 8 <= n:
        h = rot(h ^ turn(0, struct.unpack_from("<Q", data, at)[0]), 27) * P1 + P4 & M
        at += 8
    if at + 4 <= n:
        h = rot(h ^ struct.unpack_from("<I", data, at)[0] * P1 & M, 23) * P2 + P3 & M
        at += 4
    for byte in data[at:]:
        h = rot(h ^ byte * P5 & M, 11) * P1 & M
    h = (h ^ h >> 33) * P2 & M
    h = (h ^ h >> 29) * P3 & M
    return h ^ h >> 32


def unzstd(data):
    run = subprocess.run(["zstd", "-dc"], input=data, capture_output=True, check=False)
    need(run.returncode == 0, "zstd: " + run.stderr.decode(errors="replace").strip())
    return run.stdout


def leb128(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


class Image:
    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.envelope()
        self.index()
        self.frames_good()

    def envelope(self):
        d = self.data
        need(len(d) >= 4096 + 40 + 128 and d[8:16] == b"TORPORH1", "no image")
        need(struct.unpack_from("<II", d) == (SKIPPABLE, 4088), "header")
        need(struct.unpack_from("<Q", d, 504)[0] == xxh64(d[:504]), "header's checksum")
        need(not any(d[512:4096]), "header's rest")
        need(struct.unpack_from("<H", d, 16)[0] == 1, "newer format")
        need(struct.unpack_from("<Q", d, 40)[0] & ~8 == 0, "feature")
        need(struct.unpack_from("<Q", d, 72)[0] == len(d), "never completed, or cut")
        f = d[-128:]
        need(struct.unpack_from("<II", f) == (SKIPPABLE, 120) and f[8:16] == b"TORPORF1", "footer")
        need(struct.unpack_from("<Q", f, 120)[0] == xxh64(f[:120]), "footer's checksum")
        need(f[16:32] == d[24:40], "footer of another image")
        (self.index_at, self.index_size, self.nframes, self.raw_size, self.npages, self.ndata,
         self.nzero, self.bits, _, self.nblocks, _, self.index_sum,
         self.frames_sum) = struct.unpack_from("<7QBBHI2Q", f, 32)
        need(self.index_at + self.index_size + 128 == len(d), "place of the index")

    def index(self):
        x = self.data[self.index_at:self.index_at + self.index_size]
        need(struct.unpack_from("<II", x) == (SKIPPABLE, len(x) - 8), "index")
        body_size, stored, checksum = struct.unpack_from("<3Q", x, 16)
        need(x[8:16] == b"TORPORX1" and stored == len(x) - 40, "index")
        need(checksum == self.index_sum == xxh64(x[40:]), "index's checksum")
        body, at, chunks = unzstd(x[40:]), 0, {}
        need(len(body) == body_size, "length of the index's body")
        while at < len(body):
            kind, must, size = struct.unpack_from("<IIQ", body, at)
            need(kind > max(chunks, default=0) and (2 <= kind <= 6 or not must), "chunk")
            chunks[kind] = body[at + 16:at + 16 + size]
            at += 16 + (size + 7) // 8 * 8
        self.parse_blocks(chunks[2])
        n = self.nframes
        planes = struct.unpack(f"<{n}I{n}I{n}H{n}H", chunks[3])
        self.stored, self.raw, self.block, self.flags = (planes[i * n:i * n + n] for i in range(4))
        need(4096 + sum(self.stored) == self.index_at and sum(self.raw) == self.raw_size,
             "lengths of frames")
        self.classes = [chunks[4][i // 4] >> i % 4 * 2 & 3 for i in range(self.npages)]
        need((self.classes.count(2), self.classes.count(1)) == (self.ndata, self.nzero),
             "numbers of pages")
        self.home, at, frame = [], 0, 0
        while at < len(chunks[5]):
            count, at = leb128(chunks[5], at)
            zigzag, at = leb128(chunks[5], at)
            frame += zigzag // 2 if zigzag % 2 == 0 else -(zigzag + 1) // 2
            need(count > 0 and 0 <= frame < n, "extent")
            self.home += [frame] * count
        need(len(self.home) == self.npages, "extents")
        self.ranges = [(k, o, o + s) for k, _, o, s in struct.iter_unpack("<IIQQ", chunks[6])]

    def parse_blocks(self, chunk):
        need(struct.unpack_from("<II", chunk) == (self.nblocks, self.bits), "blocks")
        self.blocks, at, first = {}, 8, 0
        for number in range(self.nblocks):
            name = chunk[at + 1:at + 1 + chunk[at]].decode()
            size = struct.unpack_from("<Q", chunk, at + 1 + len(name))[0]
            self.blocks[name] = (number, first, size >> self.bits)
            first, at = first + (size >> self.bits), at + 1 + len(name) + 32
        need(first == self.npages, "number of pages")

    def frames_good(self):
        self.stream, sums, at, raw = unzstd(self.data), b"", 4096, 0
        need(len(self.stream) == self.raw_size, "length of the stream")
        self.places = []
        for stored, size in zip(self.stored, self.raw):
            self.places.append((at, raw))
            at, raw = at + stored, raw + size
            sums += struct.pack("<I", size) + self.data[at - 4:at]
        need(xxh64(sums) == self.frames_sum, "sum of the frames")

    def records(self, frame, raw):
        """(global page, class, offset in the frame) of each record of a decoded frame, in order."""
        numbers = {number: (first, pages) for number, first, pages in self.blocks.values()}
        at, block, base = 0, self.block[frame], self.places[frame][1]
        in_ram = bool(self.flags[frame] & 4)
        while at < len(raw) and not self.flags[frame] & 2:
            span = [end for _, begin, end in self.ranges if begin <= base + at < end]
            if span:
                at, in_ram = span[0] - base, False
            elif not in_ram:
                need(raw[at] in (2, 3, 8), "section")
                in_ram = raw[at] != 8
                at += 5 if in_ram else 5 + struct.unpack_from(">H", raw, at + 3)[0]
            else:
                word = struct.unpack_from(">Q", raw, at)[0]
                at += 8
                if word == 0x10:
                    at, in_ram = at + 5, False
                    continue
                need(word & 0xFFF & ~0x20 in (2, 8), "record")
                if not word & 0x20:
                    block = self.blocks[raw[at + 1:at + 1 + raw[at]].decode()][0]
                    at += 1 + raw[at]
                need((word >> self.bits) < numbers[block][1], "page outside of its block")
                yield numbers[block][0] + (word >> self.bits), 2 if word & 8 else 1, at
                at += 1 << self.bits if word & 8 else 1

    def check_pages(self):
        last = {}
        for frame in range(self.nframes):
            at, raw = self.places[frame][1], self.raw[frame]
            for page, kind, _ in self.records(frame, self.stream[at:at + raw]):
                last[page] = (kind, frame)
        for page, kind in enumerate(self.classes):
            found, frame = last.get(page, (0, 0))
            need(found == kind and (kind != 2 or frame == self.home[page]),
                 f"page {page} is not as the index says")

    def page(self, name, number):
        _, first, pages = self.blocks[name]
        need(0 <= number < pages, "no such page")
        if self.classes[first + number] != 2:
            return bytes(1 << self.bits)
        frame = self.home[first + number]
        at, base = self.places[frame]
        raw = unzstd(self.data[at:at + self.stored[frame]])
        need(len(raw) == self.raw[frame], "length of a frame")
        kind, offset = [r[1:] for r in self.records(frame, raw) if r[0] == first + number][-1]
        content = raw[offset:offset + (1 << self.bits)]
        need(kind == 2 and content == self.stream[base + offset:base + offset + len(content)],
             "the page is not where the stream has it")
        return content


def main():
    if len(sys.argv) not in (2, 4):
        sys.exit(__doc__)
    image = Image(sys.argv[1])
    if len(sys.argv) == 4:
        sys.stdout.buffer.write(image.page(sys.argv[2], int(sys.argv[3])))
        return
    image.check_pages()
    for name, (_, first, pages) in image.blocks.items():
        classes = image.classes[first:first + pages]
        print(f"{name}: {pages} pages, {classes.count(2)} data, {classes.count(1)} zero, "
              f"{classes.count(0)} not sent")
    print(f"good: {image.nframes} frames, {image.raw_size} bytes of stream")


if __name__ == "__main__":
    main()
