/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * mover_proto.h - The language between the engine and torpor-mover
 *
 * AF_UNIX SOCK_SEQPACKET, one JSON object a message (at most MOVER_MESSAGE_MAX
 * bytes), the mover's end is its descriptor 3. Descriptors go by SCM_RIGHTS with
 * the request, in the order in which its member "fds" names them.
 *
 * Request (the engine's first message), common members:
 *   {"job": NAME, "protocol": 1, "vm": NAME, "op": ID, "fds": [NAME...], ...}
 * Answer: {"hello": {"protocol": 1, "version": TEXT, "pid": N, "sandbox": [STAGE...]}}, then at
 * most ten {"progress": {"done-bytes", "total-bytes"[, "stored-bytes"][, "sealing": true]}} a
 * second (bytes of the raw stream; of the image; total is an estimate while saving), at the end
 * one of
 *   {"done": {...}}                              then exit 0
 *   {"error": {"class", "desc", ...}}            then exit 1
 * and no message after that one. Exit without it is a crash. Data jobs take "cgroup", the path
 * of a folder, as launch does, and "background": true if nobody waits: nice 19, I/O only when no
 * other process has any. Messages that the mover does not know are ignored, such as are no
 * JSON objects count as the end of the connection. When the control
 * connection ends, a job ends at once (non-zero), but a sealed save and a page server.
 *
 * save    fds stream (socketpair; QEMU writes), image (O_RDWR)
 *         {"uuid": HEX32, "level": 1, "threads": 0, "return-path": true, "limit": BYTES or 0,
 *          "total": BYTES expected, "memory"?: ...}
 *         After the seal: {"sealed": {"bytes", "raw-bytes", "footer": HEX16, "uuid", "pages",
 *         "pages-data", "pages-zero", "frames", "machine", "stream-kind", "device-bytes",
 *         "page-size", "seal-seconds", "blocks": [{"id", "bytes"}]}} (uuid and footer in hex,
 *         stream-kind "stopped", "live" or "background-snapshot"; of a stream with very many
 *         blocks only the first are listed) which is not the end: it holds the stream until
 *         {"finish": {"status": 0}} comes (then it answers SHUT, waits until QEMU closes or 60 s
 *         went by, and sends done). Once sealed it outlives the engine: when control ends, it
 *         holds the stream open until QEMU closes it, answering nothing, then exits.
 *         On its own trouble it sends error at once and goes on reading the stream into nothing
 *         until control ends: QEMU must not hang on it.
 * load    fds stream (socketpair; QEMU reads), image (O_RDONLY)
 *         {"threads": 0, "hold": BOOL}; with hold the last bytes of the stream (from the device
 *         area's last byte on) are kept back: {"held": {}}, until {"finish": {}}. The whole image
 *         was verified when "held" comes.
 *         done: {"raw-bytes", "bytes"}; every frame's checksum and the footer's sum were right.
 *         An error closes the stream, so that QEMU fails the load; of a damage within a frame it
 *         has "where": "frame N".
 * verify  fds image; {"threads": 0}; done: {"frames", "pages", "pages-data", "pages-zero",
 *         "bytes", "raw-bytes", "uuid", "footer", "machine"?, "blocks"?}. It goes on after a damage; the error, class
 *         Corrupt, has "damaged": N, all of them, and "damage": the first, at most 32:
 *         [{"what": TEXT, "frame"? (of the index and the footer: absent), "offset", "length" (in
 *         the file), and where guest pages are lost "block", "first-page", "pages" (numbered in
 *         the block, with those in between that are zero or absent), "lost" (those with data) and
 *         "ranges"?: [{"block", "first-page", "pages"}], if there are several}]. Both are absent
 *         where header, footer or index cannot be used: the text says which.
 * copy    fds source (O_RDONLY), image (O_RDWR: the copy, perhaps begun by an earlier try);
 *         {"footer": HEX16 of the source}; progress in bytes of the file.
 *         done: {"bytes", "copied-bytes", "kept-bytes", "frames"}: the copy is whole and synced
 * page-server
 *         fds image (O_RDONLY), listener (listening, of this kind) and, unless it comes later, stream
 *         (socketpair; QEMU reads, capability postcopy-ram)
 *         {"threads": 0, "hold": BOOL, "recover": BOOL, "bandwidth": BYTES a second or 0,
 *          "page-sizes"?: {RAM BLOCK: BYTES of QEMU's host pages} (larger ones than the guest's are
 *          refused with class Unsupported, by the block's name),
 *          "working-set"?: SET, a page set (storage/page_set.h): sent before all else, in its order; what
 *          of it the image does not have is passed over, "first-seconds": 10}
 *         {"state": STATUS} at each change, and when all of the working set was sent. STATUS: {"state",
 *         "page-size", "pages", "pages-sent", "pages-left", "zero-pages", "sent-bytes",
 *         "working-set-pages", "working-set-left" (of the given one), "requests", "connections",
 *         "latency-p50-us", "latency-p99-us", "latency-max-us", "bandwidth"}; pages are those with
 *         content, latency is from a request's arrival until its page went. States: "waiting" (no
 *         connection: first of all, when nothing that QEMU will need is missing; later QEMU is in
 *         postcopy-paused), "preparing", "held" (QEMU took part so far; with hold the devices wait for
 *         {"finish": {}}), "loading" (the package was sent: QEMU may run), "serving" (QEMU has its
 *         devices), "ending", "recovering". With recover QEMU is in postcopy-paused already.
 *         Understood by every version of this job, whatever the protocol of the hello:
 *           {"progress": {}}   answered by {"progress": STATUS}, which comes by itself as well
 *           {"stream": {}}     with a new socket to QEMU, after migrate-recover
 *           {"stop": {}}       ends with done; QEMU goes to postcopy-paused
 *         Besides: {"bandwidth": BYTES a second}, of what nobody asked for; {"running": {}}, when the
 *         guest was continued: its first seconds begin. A message that cannot be obeyed is answered by
 *         {"refused": {"desc"}}.
 *         When control ends it goes on. Whoever connects to listener takes the place of the former
 *         engine; its hello has "pages": STATUS.
 *         {"working-set": SET}: what was asked for while devices were loaded and for "first-seconds"
 *         from "running" on (without it: from the first request after "loading"), in order, then as
 *         much of what was given as finds room (migration/page_asked.h); with recover only the latter.
 *         Then done: STATUS. error: before "loading" as usual; later only if the image is
 *         damaged ("damage" as of verify; nothing of that frame was sent) or QEMU talks nonsense;
 *         with "pages": STATUS.
 * launch, hook, tool
 *         {"argv": [...], "env": {NAME: VALUE} (whole environment), "cwd"?: PATH,
 *          "uid"?, "gid"?, "groups"?: [..], "cgroup"?: PATH of the folder,
 *          "inherit"?: {FDNAME: NUMBER}, "nofile"?: N, "oom-score-adj"?: N,
 *          "userfaultfd"?: UID of who gets a /dev/userfaultfd of its own (needs "cwd")}
 *         fds may hold "stdin", "stdout", "stderr" and the inherited ones (numbers >= 10).
 *         No hello: the mover makes itself a session leader, takes user, group, cgroup, sets
 *         no-new-privileges, closes all else, and execs: EOF without an error = it happened;
 *         else {"error": {"class", "desc", "errno"}} and exit 127. Before that may come
 *         {"refused": {"desc"}}: why there is no such /dev/userfaultfd.
 */
#ifndef MOVER_PROTO_H
#define MOVER_PROTO_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/tp_error.h"

#define MOVER_PROTOCOL 1
#define MOVER_CONTROL_FD 3
#define MOVER_MESSAGE_MAX 65536		/* bytes; larger launch descriptions are refused at define */
#define MOVER_INHERIT_FIRST 10
#define MOVER_INHERIT_LAST 255
#define MOVER_PROGRESS_INTERVAL 0.1	/* seconds */
#define MOVER_DEPTH_MAX 16		/* levels of nesting in a message */
#define MOVER_EXIT_ERROR 1		/* after {"error"}, data jobs */
#define MOVER_EXIT_ORPHAN 4		/* the control connection ended before the job did */
#define MOVER_EXIT_EXEC 127		/* after {"error"}, launch, hook and tool */

/* What one attempt to send or receive a message came to. */
enum mover_io {
	MOVER_IO_OK,
	MOVER_IO_AGAIN,		/* would block (non-blocking socket), nothing was done */
	MOVER_IO_END,		/* the other end is gone */
	MOVER_IO_BAD,		/* err is set; when receiving, this message is lost, no later one */
};

/* Sends one message with descriptors (borrowed). Raises no signal. */
enum mover_io mover_proto_send(int sock, const json_t *message, const int *fds, size_t nfds,
			       struct tp_error *err);
/*
 * Receives one message: a JSON object, the caller's. Descriptors (CLOEXEC) go to fds, *nfds is
 * in: room, out: got; they are closed again unless the answer is MOVER_IO_OK.
 */
enum mover_io mover_proto_receive(int sock, json_t **message, int *fds, size_t *nfds,
				  struct tp_error *err);
/* A new {"error": {"class", "desc"[, "errno"]}}. NULL: out of memory. */
json_t *mover_proto_error(const struct tp_error *e);
/* The value of an "error" message as an error of ours; one line. False, like tp_fail(). */
bool mover_proto_fail(struct tp_error *err, const json_t *value);

#endif
