/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * page_store.h - Decoded frames of an image, by need: what is urgent is decoded before all else
 *
 * One thread asks and looks, the store's own threads read, decode and verify. Nothing of a frame is
 * seen before its checksum was right and its records agreed with the index.
 */
#ifndef PAGE_STORE_H
#define PAGE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/tp_error.h"
#include "image_page.h"

struct page_store;

struct page_store_options {
	const struct image *img;	/* borrowed */
	unsigned threads;		/* decoders, at least 1 */
	uint64_t bytes_max;		/* raw bytes of all frames; 0: PAGE_STORE_BYTES */
	void (*changed)(void *arg);	/* from a decoder's thread: a frame became ready, or failed */
	void *arg;
};

#define PAGE_STORE_BYTES ((uint64_t)32 << 20)
#define PAGE_STORE_FRAMES 256u		/* known at a time */

enum page_need {
	PAGE_LATER,	/* when nothing urgent waits; as long as there is room for it */
	PAGE_URGENT,	/* next; takes the room of frames that were not used for long */
};

enum page_answer {
	PAGE_READY,
	PAGE_PENDING,	/* wanted, not decoded yet */
	PAGE_UNKNOWN,	/* not wanted, or taken away for an urgent one: want it (again) */
	PAGE_FAILED,	/* err is set: TP_ECORRUPT, or a read error that stayed */
};

/* @started: how many decodes were started before this one */
struct stored_frame {
	const struct image_page *pages;
	size_t n;
	uint64_t started;
};

struct page_store *page_store_new(const struct page_store_options *o, struct tp_error *err);
void page_store_free(struct page_store *s);

/*
 * Wants a frame, or wants it more urgently. false: too many are known, ask later. *started (may be
 * NULL): how many decodes were started by now.
 */
bool page_store_want(struct page_store *s, uint64_t frame, enum page_need need, uint64_t *started);
/* PAGE_READY: *out stays valid until page_store_put() or page_store_drop(). */
enum page_answer page_store_get(struct page_store *s, uint64_t frame, struct stored_frame *out,
				struct tp_error *err);
/* Looked at; may be kept. */
void page_store_put(struct page_store *s, uint64_t frame);
/* Needed no more, decoded or not. */
void page_store_drop(struct page_store *s, uint64_t frame);
void page_store_drop_all(struct page_store *s);
/* Raw bytes of the frames that are decoded or being decoded. */
uint64_t page_store_bytes(struct page_store *s);

#endif
