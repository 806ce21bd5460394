/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * test_page_store.c - Decoding by need: order of starts, room, damage, read errors
 *
 * The decoders' reads go through a gate of the test's: it counts them, holds them up, makes them fail.
 * link: -Wl,--wrap=image_frame_read
 */
#include "image_test.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "fake/fake_guest_image.h"
#include "storage/page_store.h"

#define FRAMES 60u
#define FRAME_PAGES 16u		/* of the guest; 11 of them are data */
#define PATIENCE_MS 20000

/*
 * @open: reads pass; @waiting: how many stand at the gate
 * @fails: that many reads end in EIO
 * @log: frames in the order of their reads
 */
static struct {
	pthread_mutex_t mutex;
	pthread_cond_t changed;
	bool open;
	unsigned waiting, fails, reads;
	uint64_t log[1000];
} gate = { .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

bool __real_image_frame_read(const struct image *img, struct image_decoder *d, uint64_t frame,
			     void *buf, uint32_t *checksum, struct tp_error *err);
bool __wrap_image_frame_read(const struct image *img, struct image_decoder *d, uint64_t frame,
			     void *buf, uint32_t *checksum, struct tp_error *err);

bool __wrap_image_frame_read(const struct image *img, struct image_decoder *d, uint64_t frame,
			     void *buf, uint32_t *checksum, struct tp_error *err)
{
	bool fail;

	pthread_mutex_lock(&gate.mutex);
	gate.log[gate.reads++ % 1000] = frame;
	gate.waiting++;
	pthread_cond_broadcast(&gate.changed);
	while (!gate.open)
		pthread_cond_wait(&gate.changed, &gate.mutex);
	gate.waiting--;
	fail = gate.fails > 0;
	gate.fails -= fail;
	pthread_mutex_unlock(&gate.mutex);
	if (fail)
		return tp_fail_sys(err, EIO, "read of a frame");
	return __real_image_frame_read(img, d, frame, buf, checksum, err);
}

static void gate_set(bool open)
{
	pthread_mutex_lock(&gate.mutex);
	gate.open = open;
	pthread_cond_broadcast(&gate.changed);
	pthread_mutex_unlock(&gate.mutex);
}

static void await_waiting(unsigned n)
{
	pthread_mutex_lock(&gate.mutex);
	while (gate.waiting < n)
		pthread_cond_wait(&gate.changed, &gate.mutex);
	pthread_mutex_unlock(&gate.mutex);
}

struct rig {
	struct fake_guest_image file;
	uint64_t frame_raw;
	struct image *img;
	struct page_store *store;
	atomic_uint changes;
};

static void on_changed(void *arg)
{
	((struct rig *)arg)->changes++;
}

/* With room for so many frames, 0: for all. The first and the last frame are larger than others. */
static void rig_start(struct rig *r, unsigned threads, unsigned room)
{
	struct fake_guest_block block = { "pc.ram", (uint64_t)FRAMES * FRAME_PAGES };
	struct page_store_options o = { .threads = threads, .changed = on_changed, .arg = r };
	struct tp_error err = TP_ERROR_INIT;

	memset(r, 0, sizeof(*r));
	gate.reads = gate.fails = 0;
	gate_set(false);
	fake_guest_image_make(&r->file, &block, 1, 11);
	assert_int_equal(r->file.frames, FRAMES + 1);
	r->img = image_open(r->file.fd, &err);
	if (!r->img)
		fail_msg("%s", err.text);
	o.img = r->img;
	r->frame_raw = image_frame_raw(r->img, 1);
	o.bytes_max = room * r->frame_raw;
	r->store = page_store_new(&o, &err);
	assert_non_null(r->store);
}

static void rig_end(struct rig *r)
{
	gate_set(true);
	page_store_free(r->store);
	image_close(r->img);
	fake_guest_image_free(&r->file);
}

/* Waits for a frame that is wanted. */
static enum page_answer await_frame(struct rig *r, uint64_t frame, struct stored_frame *f,
				    struct tp_error *err)
{
	for (unsigned ms = 0; ms < PATIENCE_MS; ms++) {
		enum page_answer answer = page_store_get(r->store, frame, f, err);

		if (answer != PAGE_PENDING)
			return answer;
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	}
	fail_msg("frame %llu does not come", (unsigned long long)frame);
	return PAGE_UNKNOWN;
}

static void an_urgent_frame_is_the_next_one_begun(void **state)
{
	struct stored_frame f;
	uint64_t started = 0;
	struct rig r;

	(void)state;
	rig_start(&r, 2, 0);
	for (uint64_t i = 0; i < FRAMES - 2; i++)
		assert_true(page_store_want(r.store, i, PAGE_LATER, NULL));
	await_waiting(2);
	assert_true(page_store_want(r.store, FRAMES - 1, PAGE_URGENT, &started));
	assert_int_equal(started, 2);
	/* One that is wanted already overtakes as well. */
	assert_true(page_store_want(r.store, 40, PAGE_URGENT, &started));
	gate_set(true);
	assert_int_equal(await_frame(&r, FRAMES - 1, &f, NULL), PAGE_READY);
	assert_int_equal(await_frame(&r, 40, &f, NULL), PAGE_READY);
	assert_in_range(f.started, 2, 3);
	assert_int_equal(page_store_get(r.store, FRAMES - 1, &f, NULL), PAGE_READY);
	assert_in_range(f.started, 2, 3);
	/* The rest comes in its order, as there is room for all. */
	assert_int_equal(await_frame(&r, FRAMES - 3, &f, NULL), PAGE_READY);
	assert_int_equal(f.started, FRAMES - 2);
	rig_end(&r);
}

static void all_pages_are_as_they_were(void **state)
{
	uint8_t want[FAKE_GUEST_PAGE];
	struct stored_frame f;
	uint64_t seen = 0;
	struct rig r;

	(void)state;
	rig_start(&r, 2, 0);
	gate_set(true);
	for (uint64_t i = 0; i < FRAMES; i++)
		assert_true(page_store_want(r.store, i, PAGE_LATER, NULL));
	for (uint64_t i = 0; i < FRAMES; i++) {
		assert_int_equal(await_frame(&r, i, &f, NULL), PAGE_READY);
		for (size_t k = 0; k < f.n; k++) {
			assert_int_equal(f.pages[k].page / FRAME_PAGES, i);
			fake_guest_fill(f.pages[k].page, want);
			assert_memory_equal(f.pages[k].data, want, sizeof(want));
		}
		seen += f.n;
		page_store_drop(r.store, i);
	}
	assert_int_equal(seen, fake_guest_data_pages(r.file.pages));
	assert_int_equal(page_store_bytes(r.store), 0);
	assert_int_equal(r.changes, FRAMES);
	rig_end(&r);
}

static void later_frames_wait_for_room(void **state)
{
	struct stored_frame f;
	struct rig r;

	(void)state;
	rig_start(&r, 2, 4);
	gate_set(true);
	for (uint64_t i = 1; i < 11; i++)
		assert_true(page_store_want(r.store, i, PAGE_LATER, NULL));
	for (uint64_t i = 1; i < 5; i++)
		assert_int_equal(await_frame(&r, i, &f, NULL), PAGE_READY);
	assert_int_equal(page_store_bytes(r.store), 4 * r.frame_raw);
	assert_int_equal(page_store_get(r.store, 5, &f, NULL), PAGE_PENDING);
	page_store_drop(r.store, 1);
	assert_int_equal(await_frame(&r, 5, &f, NULL), PAGE_READY);
	assert_int_equal(page_store_get(r.store, 1, &f, NULL), PAGE_UNKNOWN);
	assert_int_equal(page_store_get(r.store, 6, &f, NULL), PAGE_PENDING);
	rig_end(&r);
}

static void an_urgent_frame_takes_the_room_of_the_least_used(void **state)
{
	struct stored_frame f;
	struct rig r;

	(void)state;
	rig_start(&r, 1, 3);
	gate_set(true);
	for (uint64_t i = 1; i < 4; i++)
		page_store_want(r.store, i, PAGE_LATER, NULL);
	for (uint64_t i = 1; i < 4; i++)
		assert_int_equal(await_frame(&r, i, &f, NULL), PAGE_READY);
	/* 1 is looked at, 2 was used before 3. */
	page_store_put(r.store, 2);
	page_store_put(r.store, 3);
	page_store_want(r.store, 9, PAGE_URGENT, NULL);
	assert_int_equal(await_frame(&r, 9, &f, NULL), PAGE_READY);
	assert_int_equal(page_store_get(r.store, 2, &f, NULL), PAGE_UNKNOWN);
	assert_int_equal(page_store_get(r.store, 1, &f, NULL), PAGE_READY);
	assert_int_equal(page_store_get(r.store, 3, &f, NULL), PAGE_READY);
	assert_int_equal(page_store_bytes(r.store), 3 * r.frame_raw);
	/* All are looked at: it goes over the limit rather than wait. */
	page_store_want(r.store, 10, PAGE_URGENT, NULL);
	assert_int_equal(await_frame(&r, 10, &f, NULL), PAGE_READY);
	assert_int_equal(page_store_bytes(r.store), 4 * r.frame_raw);
	rig_end(&r);
}

static void too_many_are_refused_but_for_urgent_ones(void **state)
{
	struct fake_guest_block block = { "pc.ram", (PAGE_STORE_FRAMES + 40) * FRAME_PAGES };
	struct page_store_options o = { .threads = 1 };
	struct tp_error err = TP_ERROR_INIT;
	struct fake_guest_image file;
	struct stored_frame f;
	struct rig r = { .changes = 0 };
	uint64_t i = 0;

	(void)state;
	gate.reads = 0;
	gate_set(false);
	fake_guest_image_make(&file, &block, 1, 11);
	r.img = image_open(file.fd, &err);
	assert_non_null(r.img);
	o.img = r.img;
	r.store = page_store_new(&o, &err);
	assert_non_null(r.store);
	while (page_store_want(r.store, i, PAGE_LATER, NULL))
		i++;
	assert_int_equal(i, PAGE_STORE_FRAMES);
	/* The youngest gives way. */
	assert_true(page_store_want(r.store, PAGE_STORE_FRAMES + 10, PAGE_URGENT, NULL));
	assert_int_equal(page_store_get(r.store, PAGE_STORE_FRAMES - 1, &f, NULL), PAGE_UNKNOWN);
	gate_set(true);
	assert_int_equal(await_frame(&r, PAGE_STORE_FRAMES + 10, &f, NULL), PAGE_READY);
	page_store_free(r.store);
	image_close(r.img);
	fake_guest_image_free(&file);
}

static void damage_is_told_and_stays(void **state)
{
	struct tp_error err = TP_ERROR_INIT, again = TP_ERROR_INIT;
	struct stored_frame f;
	struct rig r;

	(void)state;
	rig_start(&r, 2, 0);
	fake_guest_image_damage(&r.file, 5);
	gate_set(true);
	page_store_want(r.store, 5, PAGE_LATER, NULL);
	page_store_want(r.store, 6, PAGE_LATER, NULL);
	assert_int_equal(await_frame(&r, 5, &f, &err), PAGE_FAILED);
	assert_int_equal(err.code, TP_ECORRUPT);
	assert_non_null(strstr(err.text, "frame 5"));
	assert_int_equal(page_store_get(r.store, 5, &f, &again), PAGE_FAILED);
	assert_int_equal(await_frame(&r, 6, &f, NULL), PAGE_READY);
	assert_int_equal(page_store_bytes(r.store), r.frame_raw);
	rig_end(&r);
}

static void a_read_error_is_tried_again(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct stored_frame f;
	struct rig r;

	(void)state;
	rig_start(&r, 1, 0);
	gate.fails = 2;
	gate_set(true);
	page_store_want(r.store, 3, PAGE_URGENT, NULL);
	assert_int_equal(await_frame(&r, 3, &f, &err), PAGE_READY);
	assert_int_equal(err.code, TP_OK);
	assert_int_equal(gate.reads, 3);
	rig_end(&r);
}

static void a_read_error_that_stays_is_told(void **state)
{
	struct tp_error err = TP_ERROR_INIT;
	struct stored_frame f;
	struct rig r;

	(void)state;
	rig_start(&r, 1, 0);
	gate.fails = 100;
	gate_set(true);
	page_store_want(r.store, 3, PAGE_URGENT, NULL);
	assert_int_equal(await_frame(&r, 3, &f, &err), PAGE_FAILED);
	assert_int_equal(err.sys, EIO);
	assert_int_equal(gate.reads, 3);
	/* Dropped, it may be wanted anew. */
	gate.fails = 0;
	page_store_drop(r.store, 3);
	page_store_want(r.store, 3, PAGE_URGENT, NULL);
	assert_int_equal(await_frame(&r, 3, &f, NULL), PAGE_READY);
	rig_end(&r);
}

static void dropped_while_decoding_is_gone_afterwards(void **state)
{
	struct stored_frame f;
	struct rig r;

	(void)state;
	rig_start(&r, 1, 0);
	page_store_want(r.store, 3, PAGE_URGENT, NULL);
	await_waiting(1);
	page_store_drop(r.store, 3);
	page_store_want(r.store, 4, PAGE_URGENT, NULL);
	gate_set(true);
	assert_int_equal(await_frame(&r, 4, &f, NULL), PAGE_READY);
	assert_int_equal(page_store_get(r.store, 3, &f, NULL), PAGE_UNKNOWN);
	assert_int_equal(page_store_bytes(r.store), r.frame_raw);
	rig_end(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_urgent_frame_is_the_next_one_begun),
		cmocka_unit_test(all_pages_are_as_they_were),
		cmocka_unit_test(later_frames_wait_for_room),
		cmocka_unit_test(an_urgent_frame_takes_the_room_of_the_least_used),
		cmocka_unit_test(too_many_are_refused_but_for_urgent_ones),
		cmocka_unit_test(damage_is_told_and_stays),
		cmocka_unit_test(a_read_error_is_tried_again),
		cmocka_unit_test(a_read_error_that_stays_is_told),
		cmocka_unit_test(dropped_while_decoding_is_gone_afterwards),
	};

	return cmocka_run_group_tests_name("page_store", tests, NULL, NULL);
}
