/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fake_stream.c - A migration stream as QEMU of a stopped guest sends it, made or recorded, and its sender */
#include "fake/fake_stream.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/tp_size.h"

#define PIECES 64
#define AROUND 65536		/* bytes besides the pages, at most */

uint64_t fake_random(void)
{
	static uint64_t s = 88172645463325252ull;

	s ^= s << 13;
	s ^= s >> 7;
	s ^= s << 17;
	return s;
}

static void text_page(uint8_t *p)
{
	static const char *const words[] = {
		"guest ", "memory ", "kernel: ", "page ", "the ", "of ", "0x", "error ", "INFO ", "and ",
		"/usr/lib/", "session ", "for user root\n", "request ", "status=200 ", "length ",
	};
	size_t at = 0;

	while (at < FAKE_PAGE) {
		char number[24];
		const char *w = fake_random() % 4 ? words[fake_random() % 16] : number;
		size_t n;

		snprintf(number, sizeof(number), "%llu ", (unsigned long long)(fake_random() % 1000000));
		n = strlen(w);
		if (n > FAKE_PAGE - at)
			n = FAKE_PAGE - at;
		memcpy(p + at, w, n);
		at += n;
	}
}

static void random_page(uint8_t *p)
{
	for (size_t k = 0; k < FAKE_PAGE; k += 8)
		tp_put_le64(p + k, fake_random());
}

static uint8_t *put(uint8_t *p, const void *data, size_t n)
{
	memcpy(p, data, n);
	return p + n;
}

static uint8_t *put_pages(uint8_t *p, uint64_t pages, enum fake_pages what)
{
	for (uint64_t i = 0; i < pages; i++) {
		unsigned kind = what == FAKE_MIXED ? (unsigned)(fake_random() % 3) : what == FAKE_TEXT;

		tp_put_be64(p, i * FAKE_PAGE | (kind == 2 ? 2 : 8) | (i ? 0x20 : 0));
		p += 8;
		if (!i)
			p = put(p, "\6pc.ram", 7);
		if (kind == 2) {
			*p++ = 0;
			continue;
		}
		if (kind == 1)
			text_page(p);
		else
			random_page(p);
		p += FAKE_PAGE;
	}
	return p;
}

bool fake_stream_make(struct fake_stream *s, uint64_t mib, enum fake_pages what)
{
	static const char json[] = "{\"page_size\": 4096, \"devices\": []}";
	uint64_t pages = mib << 20 >> 12;
	uint8_t *p = malloc(pages * (FAKE_PAGE + 8) + AROUND);

	if (!p)
		return false;
	s->data = p;
	p = put(p, "QEVM\0\0\0\3\7\0\0\0\12pc-q35-7.2", 23);
	p = put(p, "\1\0\0\0\2\3ram\0\0\0\0\0\0\0\4", 17);
	tp_put_be64(p, pages * FAKE_PAGE | 4);
	p = put(p + 8, "\6pc.ram", 7);
	tp_put_be64(p, pages * FAKE_PAGE);
	p = put(p + 8, "\0\0\0\0\0\0\0\x10\x7e\0\0\0\2\2\0\0\0\2", 18);
	p = put_pages(p, pages, what);
	p = put(p, "\0\0\0\0\0\0\0\x10\x7e\0\0\0\2\3\0\0\0\2", 18);
	p = put(p, "\0\0\0\0\0\0\0\x10\x7e\0\0\0\2", 13);
	p = put(p, "\4\0\0\0\3\1x\0\0\0\0\0\0\0\1state\x7e\0\0\0\3\0", 26);
	*p++ = 6;
	tp_put_be32(p, sizeof(json) - 1);
	p = put(p + 4, json, sizeof(json) - 1);
	s->n = (size_t)(p - s->data);
	return true;
}

bool fake_stream_load(struct fake_stream *s, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		return false;
	if (!fstat(fd, &st)) {
		s->n = (size_t)st.st_size;
		s->data = mmap(NULL, s->n, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	}
	close(fd);
	return s->data && s->data != MAP_FAILED;
}

static void feed(const struct fake_stream *s, int fd)
{
	const size_t step = (FAKE_PAGE + 8) / 2;
	size_t at = 0;

	while (at < s->n) {
		struct iovec iov[PIECES];
		int n = 0;
		size_t end = at;
		ssize_t done;

		for (; n < PIECES && end < s->n; n++) {
			iov[n].iov_base = s->data + end;
			iov[n].iov_len = step < s->n - end ? step : s->n - end;
			end += iov[n].iov_len;
		}
		done = writev(fd, iov, n);
		if (done <= 0)
			_exit(1);
		at += (size_t)done;
	}
	_exit(0);
}

pid_t fake_stream_feed(const struct fake_stream *s, int *fd)
{
	int fds[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds))
		return -1;
	pid = fork();
	if (!pid)
		feed(s, fds[1]);
	close(fds[1]);
	*fd = fds[0];
	return pid;
}
