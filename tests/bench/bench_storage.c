/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_storage.c - One save with a given frame size and level, and the time to find pages in its image
 *
 *   bench_storage make text|random|mixed MIB STREAM
 *   bench_storage save STREAM FRAME-KIB LEVEL THREADS DIR PAGES
 *
 * The first writes a synthetic migration stream. The second saves a stream as the mover does, fed by a
 * child that plays QEMU, and then takes PAGES data pages at random: the frame by the index, decoded and
 * verified, the page by the frame's records. Each page is compared with the stream's. Prints figures as
 * JSON; storage.py makes tables of them.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_time.h"
#include "fake/fake_stream.h"
#include "migration/save_pump.h"
#include "storage/image_page.h"
#include "storage/image_read.h"

#define PATH_SIZE 256

static void die(const char *what, const char *why)
{
	fprintf(stderr, "bench_storage: %s: %s\n", what, why);
	exit(1);
}

/* --- make --- */

static int make_stream(char *const argv[])
{
	static const char *const kinds[] = { "text", "random", "mixed" };
	struct fake_stream s = { 0 };
	unsigned kind = 0;
	FILE *out;

	while (kind < TP_N(kinds) && strcmp(kinds[kind], argv[2]) != 0)
		kind++;
	if (kind == TP_N(kinds) || atoi(argv[3]) < 1)
		return 2;
	out = fopen(argv[4], "we");
	if (!out || !fake_stream_make(&s, (uint64_t)atoi(argv[3]), (enum fake_pages)kind) ||
	    fwrite(s.data, s.n, 1, out) != 1 || fclose(out))
		die(argv[4], strerror(errno));
	free(s.data);
	return 0;
}

/* --- save --- */

/* @at: where in the raw stream each data page lies, by page; 0: it is none */
struct pages {
	const struct fake_stream *stream;
	struct image *img;
	struct image_decoder *decoder;
	uint64_t *at;
	uint8_t *buf;
};

static int save(const struct fake_stream *s, struct save_pump_options *o, const char *dir, double took[2])
{
	struct tp_error err = TP_ERROR_INIT;
	struct save_result r;
	char path[PATH_SIZE];
	double start;
	pid_t pid;

	snprintf(path, sizeof(path), "%s/bench-storage-XXXXXX", dir);
	o->image_fd = mkostemp(path, O_CLOEXEC);
	if (o->image_fd < 0)
		die(path, strerror(errno));
	unlink(path);
	pid = fake_stream_feed(s, &o->stream_fd);
	if (pid < 0)
		die("the stream's sender", strerror(errno));
	start = tp_now_mono();
	if (!save_pump_run(o, &r, &err))
		die("save", err.text);
	took[1] = tp_now_mono() - start;
	took[0] = took[1] - r.seal_seconds;
	save_result_free(&r);
	close(o->stream_fd);
	waitpid(pid, NULL, 0);
	return o->image_fd;
}

/* --- pages --- */

static void read_frame(struct pages *p, uint64_t frame, struct image_page **list, size_t *n)
{
	struct tp_error err = TP_ERROR_INIT;
	uint32_t checksum;

	if (!image_frame_read(p->img, p->decoder, frame, p->buf, &checksum, &err) ||
	    !image_frame_pages(p->img, frame, p->buf, list, n, &err))
		die("frame", err.text);
}

/* Frames hold the stream's bytes in order: that is checked here, and tells where each page is in it. */
static uint64_t map_pages(struct pages *p)
{
	const struct image_info *info = image_info(p->img);
	uint64_t raw = 0, found = 0;

	for (uint64_t frame = 0; frame < info->frames; frame++) {
		tp_autofree struct image_page *list = NULL;
		size_t n = 0;

		read_frame(p, frame, &list, &n);
		if (memcmp(p->buf, p->stream->data + raw, image_frame_raw(p->img, frame)) != 0)
			die("frame", "it differs from the stream");
		for (size_t i = 0; i < n; i++)
			p->at[list[i].page] = raw + (uint64_t)(list[i].data - p->buf);
		found += n;
		raw += image_frame_raw(p->img, frame);
	}
	return found;
}

/* Seconds until the page is there. */
static double find_page(struct pages *p, uint64_t page)
{
	tp_autofree struct image_page *list = NULL;
	double start = tp_now_mono(), took;
	uint8_t copy[FAKE_PAGE];
	uint64_t frame = 0;
	size_t n = 0, i = 0;

	if (image_page_find(p->img, page, &frame) != IMAGE_DATA)
		die("index", "a data page is none");
	read_frame(p, frame, &list, &n);
	while (i < n && list[i].page != page)
		i++;
	if (i == n)
		die("index", "a page is not where it says");
	memcpy(copy, list[i].data, sizeof(copy));
	took = tp_now_mono() - start;
	if (memcmp(copy, p->stream->data + p->at[page], sizeof(copy)) != 0)
		die("page", "it differs from the stream");
	return took;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static void find_pages(struct pages *p, unsigned count, double *p50, double *p99)
{
	uint64_t pages = image_info(p->img)->pages;
	double *took = malloc(count * sizeof(*took));

	if (!took)
		die("memory", strerror(ENOMEM));
	for (unsigned i = 0; i < count; i++) {
		uint64_t page = fake_random() % pages;

		while (!p->at[page])
			page = (page + 1) % pages;
		took[i] = find_page(p, page);
	}
	qsort(took, count, sizeof(*took), by_value);
	*p50 = took[count / 2];
	*p99 = took[count - 1 - count / 100];
	free(took);
}

static void measure_pages(const struct fake_stream *s, int fd, unsigned count, double *p50, double *p99)
{
	struct tp_error err = TP_ERROR_INIT;
	struct pages p = { .stream = s, .img = image_open(fd, &err), .decoder = image_decoder_new(&err) };

	if (p.img)
		p.at = calloc(image_info(p.img)->pages + 1, sizeof(*p.at));
	p.buf = malloc(IMAGE_FRAME_MAX);
	if (!p.img || !p.decoder || !p.at || !p.buf)
		die("image", err.code ? err.text : strerror(ENOMEM));
	if (map_pages(&p) == 0)
		die("image", "it has no data pages");
	find_pages(&p, count, p50, p99);
	image_decoder_free(p.decoder);
	image_close(p.img);
	free(p.at);
	free(p.buf);
}

static int save_stream(char *const argv[])
{
	struct save_pump_options o = { .frame_target = (uint32_t)atoi(argv[3]) << 10, .level = atoi(argv[4]),
				       .threads = (unsigned)atoi(argv[5]) };
	unsigned count = (unsigned)atoi(argv[7]);
	struct fake_stream s = { 0 };
	double took[2], p50 = 0, p99 = 0;
	int fd;

	if (!fake_stream_load(&s, argv[2]))
		die(argv[2], strerror(errno));
	fd = save(&s, &o, argv[6], took);
	if (count > 0)
		measure_pages(&s, fd, count, &p50, &p99);
	printf("{\"raw\": %zu, \"bytes\": %lld, \"written\": %.6f, \"durable\": %.6f, \"p50\": %.9f, "
	       "\"p99\": %.9f}\n", s.n, (long long)lseek(fd, 0, SEEK_END), took[0], took[1], p50, p99);
	return close(fd);
}

int main(int argc, char **argv)
{
	int status = 2;

	signal(SIGPIPE, SIG_IGN);
	if (argc == 5 && strcmp(argv[1], "make") == 0)
		status = make_stream(argv);
	else if (argc == 8 && strcmp(argv[1], "save") == 0)
		status = save_stream(argv);
	if (status == 2)
		fputs("usage: bench_storage make text|random|mixed MIB STREAM\n"
		      "       bench_storage save STREAM FRAME-KIB LEVEL THREADS DIR PAGES\n", stderr);
	return status;
}
