/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* page_server_priv.h - What the files of the page server share: not for other files */
#ifndef PAGE_SERVER_PRIV_H
#define PAGE_SERVER_PRIV_H

#include <pthread.h>

#include "latency.h"
#include "page_asked.h"
#include "page_out.h"
#include "page_server.h"
#include "page_track.h"
#include "return_path.h"
#include "storage/page_store.h"

#define PAGES_REQUESTS 1024u	/* that wait; QEMU has one for each thread of its that touches memory */
#define PAGES_NEAR 32u		/* places around which pages are sent next */
#define PAGES_AHEAD 16u		/* frames of the background that are decoded ahead */

struct page_request {
	uint64_t page;
	double since;
};

/* @page: was asked for; @frame: holds it, NO_FRAME: a zero page */
struct page_near {
	uint64_t page, frame;
};

/* @page: the one for which the frame was taken up */
struct page_ahead {
	uint64_t page, frame;
};

#define NO_FRAME UINT64_MAX

/*
 * @prologue: all that goes before the package; @package: all of it, freed once sent
 * @bitmaps: blocks whose bitmap is still to come; @bitmap_block, @bitmap_at: the present one, pages
 * @credit: bytes that the background may send, of a limited bandwidth; @credit_at: as of when
 * @idle: there was nothing to send; @held_up: messages of QEMU wait for room in requests
 * @first_until: end of the guest's first seconds, monotonic; 0: they have not begun
 * @ran: somebody said that it runs; @preferred_told: that all preferred pages were sent
 * @bad_frame: that cannot be decoded, or NO_FRAME
 * Under the mutex: what other threads leave and take: @orders, @status.
 */
struct page_server {
	struct page_server_options o;
	struct image *img;
	const struct image_info *info;
	struct page_store *store;
	struct page_track track;
	struct page_asked asked;
	enum page_server_state state;
	int fd;
	struct page_out out;
	struct return_path back;
	uint8_t in[64 << 10];
	size_t in_n;
	struct tp_buf prologue, package;

	struct page_request requests[PAGES_REQUESTS];
	unsigned nrequests;
	struct page_near near[PAGES_NEAR];
	unsigned nnear;
	struct page_ahead ahead[PAGES_AHEAD];
	unsigned nahead;
	unsigned bitmaps, bitmap_block;
	uint64_t bitmap_at;
	uint64_t bandwidth;
	double credit, credit_at;
	bool idle, held_up;
	double first_until;
	bool ran, preferred_told;
	uint64_t bad_frame;
	struct latency latency;
	uint64_t zeros, connections;
	double published_at;
	uint64_t published_bytes;

	pthread_mutex_t mutex;
	struct {
		bool stop, release, running;
		int stream;		/* -1: none */
		uint64_t bandwidth;
	} orders;
	struct page_server_status status;
};

/* page_setup.c: what QEMU is told before and after the package, and when it comes back. */
bool page_setup_prepare(struct page_server *s, struct tp_error *err);
bool page_setup_begin(struct page_server *s, struct tp_error *err);
bool page_setup_package(struct page_server *s, struct tp_error *err);
bool page_setup_recover(struct page_server *s, struct tp_error *err);
/* A message of the return path that is about it. */
bool page_setup_message(struct page_server *s, enum return_kind kind, const struct return_message *m,
			struct tp_error *err);

/* page_serve.c: pages on request, near requests, and all others. */
bool page_serve_request(struct page_server *s, const struct return_message *m, struct tp_error *err);
/* Puts out what is due, as far as the socket takes it. *gone: the connection is broken. */
bool page_serve(struct page_server *s, bool *gone, struct tp_error *err);
/* Seconds until the bandwidth allows more; < 0: nothing waits for that. */
double page_serve_wait(const struct page_server *s);
/* A new connection: forgets what was going on. */
void page_serve_reset(struct page_server *s);

/* page_server.c */
void page_server_enter(struct page_server *s, enum page_server_state state);

#endif
