/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * guestd_memory.c - memory of the test guest that a save has to carry: filled, verified, dirtied
 *
 * Theory of operation
 *   Filled memory has a checksum that is kept beside it. The dirty region is separate: each of its
 *   pages is made from the seed in its first word, so a page can be checked while others change.
 */
#include "guestd.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define MIB ((size_t)1 << 20)
#define PAGE ((size_t)4096)
#define PAGE_WORDS (PAGE / sizeof(uint64_t))
#define FILL_MIB_MAX 65536
#define DIRTY_REGION_MIB 32
#define DIRTY_STEP_NS 20000000

static uint64_t *filled;
static size_t filled_bytes;
static uint64_t filled_sum;

static pthread_mutex_t dirty_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t *dirty_region;
static size_t dirty_pages;
static atomic_long dirty_rate;

static inline uint64_t xorshift(uint64_t *state)
{
	uint64_t x = *state;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return *state = x;
}

/* Rotate, xor, multiply in four lanes: one pass over memory, order and place of words count. */
static uint64_t checksum(const uint64_t *words, size_t bytes)
{
	uint64_t lane[4] = {1, 2, 3, 4};
	size_t i, n = bytes / sizeof(*words);

	for (i = 0; i < n; i++) {
		uint64_t *l = &lane[i & 3];

		*l = (*l << 7 | *l >> 57) ^ words[i];
		*l *= 0x9e3779b97f4a7c15ULL;
	}
	return lane[0] ^ lane[1] << 1 ^ lane[2] << 2 ^ lane[3] << 3;
}

static void fill_random(uint64_t *words, size_t n, uint64_t seed)
{
	uint64_t state = seed | 1;

	for (size_t i = 0; i < n; i++)
		words[i] = xorshift(&state);
}

static void fill_pattern(uint64_t *words, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		words[i] = seed + i / PAGE_WORDS;
}

/* Words of a small vocabulary in random order: compresses about as a log file does. */
static void fill_text(uint64_t *words, size_t n, uint64_t seed)
{
	static const char vocabulary[] = "machine memory restored the daemon of image a page "
					 "snapshot 0x7f3a and 192.168.1.7 error: in state=running "
					 "value disk thread 2024-11-30 to is write failed block ";
	static const size_t last = sizeof(vocabulary) - 1;
	char *out = (char *)words, *end = out + n * sizeof(*words);
	uint64_t state = seed | 1;

	while (out < end) {
		uint64_t random = xorshift(&state);
		const char *from = vocabulary + random % (last - 24);
		size_t len = 8 + (random >> 32) % 16;

		if (len > (size_t)(end - out))
			len = (size_t)(end - out);
		memcpy(out, from, len);
		out += len;
	}
}

static void fill_zero(uint64_t *words, size_t n, uint64_t seed)
{
	(void)seed;
	memset(words, 0, n * sizeof(*words));
}

static void fill_mixed(uint64_t *words, size_t n, uint64_t seed)
{
	static void (*const kinds[])(uint64_t *, size_t, uint64_t) = {fill_random, fill_text,
								      fill_zero};
	const size_t step = MIB / sizeof(*words);

	for (size_t i = 0; i * step < n; i++)
		kinds[i % 3](words + i * step, step, seed + i * 0x9e3779b9);
}

static const struct fill_kind {
	const char *name;
	void (*fill)(uint64_t *words, size_t n, uint64_t seed);
} fill_kinds[] = {
	{"random", fill_random}, {"pattern", fill_pattern}, {"text", fill_text},
	{"zero", fill_zero},	 {"mixed", fill_mixed},
};

static const struct fill_kind *find_fill_kind(const char *name)
{
	for (size_t i = 0; i < sizeof(fill_kinds) / sizeof(*fill_kinds); i++)
		if (strcmp(fill_kinds[i].name, name) == 0)
			return &fill_kinds[i];
	return NULL;
}

static void *map_memory(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			    0);

	return memory == MAP_FAILED ? NULL : memory;
}

/* fill MIB KIND [SEED] */
void cmd_fill(char **word)
{
	long mib = parse_number(word[1], FILL_MIB_MAX);
	const struct fill_kind *kind = word[2] ? find_fill_kind(word[2]) : NULL;
	uint64_t seed = word[2] && word[3] ? strtoull(word[3], NULL, 0) : nonce;
	double start = seconds(CLOCK_MONOTONIC);

	if (mib < 0 || !kind) {
		say("ERR fill usage: fill MIB random|pattern|text|zero|mixed [SEED]");
		return;
	}
	if (filled)
		munmap(filled, filled_bytes);
	filled = NULL;
	filled_bytes = (size_t)mib * MIB;
	if (mib > 0) {
		filled = map_memory(filled_bytes);
		if (!filled) {
			filled_bytes = 0;
			say("ERR fill cannot map %ld MiB: %s", mib, strerror(errno));
			return;
		}
		kind->fill(filled, filled_bytes / sizeof(*filled), seed);
	}
	filled_sum = checksum(filled, filled_bytes);
	say("OK fill sum=%016" PRIx64 " mib=%ld kind=%s seconds=%.2f", filled_sum, mib, kind->name,
	    seconds(CLOCK_MONOTONIC) - start);
}

static void make_dirty_page(uint64_t *page, uint64_t seed)
{
	uint64_t state = seed | 1;

	page[0] = seed | 1;
	for (size_t i = 1; i < PAGE_WORDS; i++)
		page[i] = xorshift(&state);
}

static bool dirty_page_is_whole(const uint64_t *page)
{
	uint64_t state = page[0];

	for (size_t i = 1; i < PAGE_WORDS; i++)
		if (page[i] != xorshift(&state))
			return false;
	return true;
}

static size_t count_bad_dirty_pages(void)
{
	size_t bad = 0;

	for (size_t i = 0; i < dirty_pages; i++) {
		pthread_mutex_lock(&dirty_lock);
		bad += !dirty_page_is_whole(dirty_region + i * PAGE_WORDS);
		pthread_mutex_unlock(&dirty_lock);
	}
	return bad;
}

void cmd_verify(char **word)
{
	uint64_t sum = checksum(filled, filled_bytes);
	size_t bad = count_bad_dirty_pages();
	bool ok = sum == filled_sum && bad == 0;

	(void)word;
	say("%s verify sum=%016" PRIx64 " expected=%016" PRIx64 " %s mib=%zu dirty-pages=%zu bad=%zu",
	    ok ? "OK" : "ERR", sum, filled_sum, ok ? "ok" : "differs", filled_bytes / MIB,
	    dirty_pages, bad);
}

/*
 * touch MIB: reads filled memory from its middle on, a word of each page. It is a task whose time
 * says how soon a restored guest has the memory that it works with.
 */
void cmd_touch(char **word)
{
	long mib = parse_number(word[1], FILL_MIB_MAX);
	const volatile uint64_t *page;
	double start = seconds(CLOCK_MONOTONIC);
	size_t pages;
	uint64_t sum = 0;

	if (mib < 1 || (size_t)mib * MIB > filled_bytes / 2) {
		say("ERR touch usage: touch MIB, at most half of what is filled");
		return;
	}
	page = filled + filled_bytes / 2 / PAGE * PAGE_WORDS;
	pages = (size_t)mib * MIB / PAGE;
	for (size_t i = 0; i < pages; i++)
		sum = sum * 31 + page[i * PAGE_WORDS];
	say("OK touch sum=%016" PRIx64 " mib=%ld seconds=%.3f", sum, mib,
	    seconds(CLOCK_MONOTONIC) - start);
}

static void *dirty_thread(void *arg)
{
	uint64_t seed = nonce;
	double budget = 0, last = seconds(CLOCK_MONOTONIC);
	size_t next = 0;

	(void)arg;
	for (;;) {
		long rate = atomic_load(&dirty_rate);
		double now;

		nap_ns(DIRTY_STEP_NS);
		now = seconds(CLOCK_MONOTONIC);
		budget += (now - last) * (double)rate * MIB / PAGE;
		last = now;
		/* Do not catch up after a stall, or a restored guest would start with a burst. */
		if (rate == 0)
			budget = 0;
		if (budget > (double)rate * MIB / PAGE)
			budget = (double)rate * MIB / PAGE;
		for (; budget >= 1; budget--) {
			pthread_mutex_lock(&dirty_lock);
			make_dirty_page(dirty_region + next * PAGE_WORDS, xorshift(&seed));
			pthread_mutex_unlock(&dirty_lock);
			next = (next + 1) % dirty_pages;
		}
	}
	return NULL;
}

/* dirty MIB_PER_SECOND [REGION_MIB]: the region is made by the first call. */
void cmd_dirty(char **word)
{
	long rate = parse_number(word[1], FILL_MIB_MAX);
	long mib = word[1] && word[2] ? parse_number(word[2], FILL_MIB_MAX) : DIRTY_REGION_MIB;

	if (rate < 0 || mib < 1) {
		say("ERR dirty usage: dirty MIB_PER_SECOND [REGION_MIB]");
		return;
	}
	if (!dirty_region && rate > 0) {
		dirty_region = map_memory((size_t)mib * MIB);
		if (!dirty_region) {
			say("ERR dirty cannot map %ld MiB: %s", mib, strerror(errno));
			return;
		}
		dirty_pages = (size_t)mib * MIB / PAGE;
		for (size_t i = 0; i < dirty_pages; i++)
			make_dirty_page(dirty_region + i * PAGE_WORDS, i);
		start_thread(dirty_thread, NULL);
	}
	atomic_store(&dirty_rate, rate);
	say("OK dirty rate=%ld region-mib=%zu", rate, dirty_pages * PAGE / MIB);
}

