/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * guestd_disk.c - files on the disk of the test guest
 *
 * Theory of operation
 *   The sequence writer appends a number to a file on disk with fsync and then stores it in RAM,
 *   so at every instant the disk has the number in RAM or the one after it. Files are read from
 *   the device: their clean pages are dropped from the cache first, which a restore brings back.
 */
#include "guestd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SEQ_FILE "/disk/seq"
#define SEQ_RECORD "%016" PRIu64 "\n"
#define SEQ_RECORD_BYTES 17
#define SEQ_MS_MAX 60000

static int seq_fd;
static atomic_bool seq_on;
static atomic_bool seq_busy;
static atomic_int seq_ms = 10;
static _Atomic uint64_t seq_in_ram;
static atomic_int seq_errno;

/* A path below /disk, or NULL. */
static const char *disk_path(const char *name, char *buffer, size_t size)
{
	if (!name || name[0] == '/' || strstr(name, "..") ||
	    (size_t)snprintf(buffer, size, "/disk/%s", name) >= size)
		return NULL;
	return buffer;
}

/* Clean pages of the file leave the cache, so that the next read comes from the device. */
static void forget_cached(int fd)
{
	fdatasync(fd);
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

/* write FILE TEXT: TEXT is the rest of the line. */
void cmd_write(char **word)
{
	char path[LINE_BYTES];
	const char *text = word[1] && word[2] ? word[2] : "";
	int fd;

	if (!disk_path(word[1], path, sizeof(path))) {
		say("ERR write usage: write FILE TEXT");
		return;
	}
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || fsync(fd) < 0)
		say("ERR write %s: %s", path, strerror(errno));
	else
		say("OK write bytes=%zu", strlen(text));
	if (fd >= 0)
		close(fd);
}

void cmd_read(char **word)
{
	char path[LINE_BYTES], text[LINE_BYTES];
	ssize_t len = -1;
	int fd;

	if (!disk_path(word[1], path, sizeof(path))) {
		say("ERR read usage: read FILE");
		return;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		forget_cached(fd);
		len = read(fd, text, sizeof(text) - 1);
	}
	if (len < 0) {
		say("ERR read %s: %s", path, strerror(errno));
	} else {
		text[len] = '\0';
		text[strcspn(text, "\n")] = '\0';
		say("OK read %s", text);
	}
	if (fd >= 0)
		close(fd);
}

void cmd_sync(char **word)
{
	(void)word;
	sync();
	say("OK sync");
}

static bool seq_append(int fd, uint64_t number)
{
	char record[SEQ_RECORD_BYTES + 1];

	snprintf(record, sizeof(record), SEQ_RECORD, number);
	return write(fd, record, SEQ_RECORD_BYTES) == SEQ_RECORD_BYTES && fsync(fd) == 0;
}

static void *seq_thread(void *arg)
{
	uint64_t number = 0;

	(void)arg;
	while (atomic_load(&seq_on)) {
		if (!seq_append(seq_fd, ++number)) {
			atomic_store(&seq_errno, errno);
			break;
		}
		atomic_store(&seq_in_ram, number);
		nap_ns((int64_t)atomic_load(&seq_ms) * 1000000);
	}
	close(seq_fd);
	atomic_store(&seq_busy, false);
	return NULL;
}

/* The last whole record on disk, counting records that are not in order as gaps. */
static bool seq_on_disk(uint64_t *last, uint64_t *gaps)
{
	char line[SEQ_RECORD_BYTES + 1];
	FILE *file = fopen(SEQ_FILE, "re");

	*last = *gaps = 0;
	if (!file)
		return false;
	forget_cached(fileno(file));
	while (fread(line, SEQ_RECORD_BYTES, 1, file) == 1) {
		uint64_t number;

		line[SEQ_RECORD_BYTES] = '\0';
		number = strtoull(line, NULL, 10);
		*gaps += number != *last + 1;
		*last = number;
	}
	fclose(file);
	return true;
}

static void seq_show(void)
{
	uint64_t before = atomic_load(&seq_in_ram), last, gaps, after;
	int err = atomic_load(&seq_errno);
	bool consistent;

	if (!seq_on_disk(&last, &gaps)) {
		say("ERR seq no sequence on the disk");
		return;
	}
	after = atomic_load(&seq_in_ram);
	consistent = gaps == 0 && last >= before && last <= after + 1;
	say("%s seq ram=%" PRIu64 " disk=%" PRIu64 " gaps=%" PRIu64 " errno=%d",
	    consistent && !err ? "OK" : "ERR", after, last, gaps, err);
}

static void seq_start(int ms)
{
	if (atomic_load(&seq_busy)) {
		say("ERR seq already started");
		return;
	}
	seq_fd = open(SEQ_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (seq_fd < 0) {
		say("ERR seq %s: %s", SEQ_FILE, strerror(errno));
		return;
	}
	atomic_store(&seq_in_ram, 0);
	atomic_store(&seq_errno, 0);
	atomic_store(&seq_ms, ms);
	atomic_store(&seq_on, true);
	atomic_store(&seq_busy, true);
	start_thread(seq_thread, NULL);
	say("OK seq started");
}

/* seq start [MS] | stop | show */
void cmd_seq(char **word)
{
	const char *what = word[1] ? word[1] : "";
	long ms = word[1] && word[2] ? parse_number(word[2], SEQ_MS_MAX) : 10;

	if (strcmp(what, "start") == 0 && ms >= 0) {
		seq_start((int)ms);
	} else if (strcmp(what, "stop") == 0) {
		atomic_store(&seq_on, false);
		while (atomic_load(&seq_busy))
			nap_ns(1000000);
		seq_show();
	} else if (strcmp(what, "show") == 0) {
		seq_show();
	} else {
		say("ERR seq usage: seq start [MS]|stop|show");
	}
}

