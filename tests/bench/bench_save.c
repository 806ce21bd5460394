/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bench_save.c - Speed and size of a save: the pump against a pipe into `zstd -1`
 *
 *   bench_save [-r RUNS] [-m MIB] [-t THREADS] [-d DIR] [STREAM]
 *
 * A child plays QEMU: it writes a migration stream (synthetic: pages in thirds
 * of random, text-like and zero; or a recorded one from a file) into a
 * socketpair, 64 pieces in a writev, as QEMU does. Ours: parse, frames, zstd -1,
 * checksums, index, both syncs. Peer: `zstd -1 -T<n> -c > file` fed by the same
 * child, with and without an fsync after it. The order of the two is drawn
 * anew each run. Prints medians.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/tp_time.h"
#include "fake/fake_stream.h"
#include "migration/save_pump.h"

#define RUNS_MAX 100

struct bench {
	unsigned runs, threads;
	uint64_t mib;
	const char *dir, *recorded;
	struct fake_stream stream;
};

struct sample {
	double seconds, synced, cpu;	/* cpu: of all processes, the one that plays QEMU included */
	uint64_t bytes;
};

static void die(const char *what)
{
	fprintf(stderr, "bench_save: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int output(const struct bench *b, char *path)
{
	int fd;

	sprintf(path, "%.200s/bench-save-XXXXXX", b->dir);
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0)
		die(path);
	return fd;
}

static uint64_t size_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : (uint64_t)st.st_size;
}

static struct sample run_pump(const struct bench *b)
{
	struct save_pump_options o = { .threads = b->threads, .level = 1 };
	struct tp_error err = TP_ERROR_INIT;
	struct save_result r;
	struct sample s;
	char path[256];
	double start;
	pid_t pid = fake_stream_feed(&b->stream, &o.stream_fd);

	if (pid < 0)
		die("the stream's sender");
	o.image_fd = output(b, path);
	start = tp_now_mono();
	if (!save_pump_run(&o, &r, &err)) {
		fprintf(stderr, "bench_save: %s\n", err.text);
		exit(1);
	}
	s.synced = tp_now_mono() - start;
	s.seconds = s.synced - r.seal_seconds;
	s.bytes = size_of(o.image_fd);
	save_result_free(&r);
	close(o.stream_fd);
	close(o.image_fd);
	unlink(path);
	waitpid(pid, NULL, 0);
	return s;
}

static struct sample run_zstd(const struct bench *b)
{
	struct sample s;
	char path[256], threads[16];
	int in, out = output(b, path), status;
	pid_t feeder, zstd;
	double start;

	snprintf(threads, sizeof(threads), "-T%u", b->threads);
	feeder = fake_stream_feed(&b->stream, &in);
	start = tp_now_mono();
	zstd = fork();
	if (!zstd) {
		dup2(in, 0);
		dup2(out, 1);
		execlp("zstd", "zstd", "-q", "-1", threads, "-c", (char *)NULL);
		_exit(127);
	}
	close(in);
	if (feeder < 0 || zstd < 0 || waitpid(zstd, &status, 0) != zstd || status)
		die("zstd");
	s.seconds = tp_now_mono() - start;
	if (fsync(out))
		die("fsync");
	s.synced = tp_now_mono() - start;
	s.bytes = size_of(out);
	close(out);
	unlink(path);
	waitpid(feeder, NULL, 0);
	return s;
}

static double cpu_seconds(void)
{
	struct rusage u[2];
	double sum = 0;

	if (getrusage(RUSAGE_SELF, &u[0]) || getrusage(RUSAGE_CHILDREN, &u[1]))
		die("getrusage");
	for (int i = 0; i < 2; i++)
		sum += (double)(u[i].ru_utime.tv_sec + u[i].ru_stime.tv_sec) +
		       (double)(u[i].ru_utime.tv_usec + u[i].ru_stime.tv_usec) / 1e6;
	return sum;
}

static struct sample measure(struct sample (*run)(const struct bench *b), const struct bench *b)
{
	double before = cpu_seconds();
	struct sample s = run(b);

	s.cpu = cpu_seconds() - before;
	return s;
}

/* ---- results */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(const double *v, unsigned n)
{
	double sorted[RUNS_MAX];

	memcpy(sorted, v, n * sizeof(*v));
	qsort(sorted, n, sizeof(*sorted), by_value);
	return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

struct series {
	double seconds[RUNS_MAX], synced[RUNS_MAX], cpu[RUNS_MAX];
	uint64_t bytes;
};

static void keep(struct series *s, unsigned i, const struct sample *one)
{
	s->seconds[i] = one->seconds;
	s->synced[i] = one->synced;
	s->cpu[i] = one->cpu;
	s->bytes = one->bytes;
}

static void print_row(const struct bench *b, const char *name, const struct series *s)
{
	double seconds = median(s->seconds, b->runs);

	printf("%-18s %7.3f s %7.3f s synced %7.3f s CPU %6.0f MB/s %11llu bytes\n", name, seconds,
	       median(s->synced, b->runs), median(s->cpu, b->runs), (double)b->stream.n / 1e6 / seconds,
	       (unsigned long long)s->bytes);
}

static void run_all(const struct bench *b)
{
	static struct series ours, peer;
	struct sample p = { 0 }, z = { 0 };
	struct rusage usage;

	for (unsigned i = 0; i < b->runs; i++) {
		bool first = fake_random() & 1;

		if (first)
			p = measure(run_pump, b);
		z = measure(run_zstd, b);
		if (!first)
			p = measure(run_pump, b);
		keep(&ours, i, &p);
		keep(&peer, i, &z);
	}
	printf("stream %.1f MB, %u threads, %u runs, medians\n", (double)b->stream.n / 1e6, b->threads, b->runs);
	print_row(b, "torpor", &ours);
	print_row(b, "zstd -1 in a pipe", &peer);
	printf("faster than the unsynced pipe, seal and syncs included: %.2fx; both synced: %.2fx; size %+.2f %%\n",
	       median(peer.seconds, b->runs) / median(ours.synced, b->runs),
	       median(peer.synced, b->runs) / median(ours.synced, b->runs),
	       100.0 * ((double)ours.bytes - (double)peer.bytes) / (double)peer.bytes);
	if (!getrusage(RUSAGE_SELF, &usage))
		printf("largest resident set, stream of the bench included: %ld MiB\n",
		       usage.ru_maxrss >> 10);
}

int main(int argc, char **argv)
{
	struct bench b = { .runs = 5, .threads = 2, .mib = 1024, .dir = "/tmp" };
	int c;

	signal(SIGPIPE, SIG_IGN);
	while ((c = getopt(argc, argv, "r:m:t:d:")) != -1) {
		switch (c) {
		case 'r': b.runs = (unsigned)atoi(optarg); break;
		case 'm': b.mib = (uint64_t)atoll(optarg); break;
		case 't': b.threads = (unsigned)atoi(optarg); break;
		case 'd': b.dir = optarg; break;
		default: fprintf(stderr, "usage: bench_save [-r RUNS] [-m MIB] [-t THREADS] [-d DIR] [STREAM]\n");
			 return 2;
		}
	}
	if (b.runs < 1 || b.runs > RUNS_MAX || b.mib < 1)
		return 2;
	b.recorded = argv[optind];
	if (b.recorded ? !fake_stream_load(&b.stream, b.recorded) : !fake_stream_make(&b.stream, b.mib, FAKE_MIXED))
		die(b.recorded ? b.recorded : "memory for the stream");
	run_all(&b);
	return 0;
}
