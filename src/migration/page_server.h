/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * page_server.h - Lazy restore: plays the source of a post-copy migration over a memory image
 *
 * The guest runs after its devices were loaded; its memory comes when it is touched, and the rest
 * meanwhile. What the destination's QEMU needs: capabilities postcopy-ram (and late-block-activate),
 * `migrate-incoming` on the other end of the stream.
 *
 * One thread runs the server; what is marked "any thread" may be called beside it. All sizes are
 * bytes, pages are guest pages.
 */
#ifndef PAGE_SERVER_H
#define PAGE_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/tp_error.h"
#include "storage/image_damage.h"
#include "storage/image_read.h"

struct page_server;

enum page_server_state {
	PAGES_WAITING,		/* no connection: QEMU is in postcopy-paused, or was never there */
	PAGES_PREPARING,	/* QEMU is told the blocks, and asked whether it can do it */
	PAGES_HELD,		/* it can; the package with the devices waits for the release */
	PAGES_LOADING,		/* the package was sent: QEMU loads the devices; pages are served */
	PAGES_RECOVERING,	/* a new connection: QEMU is asked which pages it has */
	PAGES_SERVING,
	PAGES_ENDING,		/* all was sent; QEMU is to say that it is complete */
	PAGES_DONE,
};

const char *page_server_state_name(enum page_server_state state);

#define PAGE_SERVER_FIRST_SECONDS 10u	/* usual length of the guest's first seconds */

struct page_server_options {
	int image_fd;			/* borrowed */
	int wake_fd;			/* an eventfd, borrowed: made readable to wake the server */
	unsigned threads;		/* decoders, at least 1 */
	uint64_t bandwidth;		/* bytes a second of what nobody asked for; 0: no limit */
	bool hold;			/* stay PAGES_HELD until page_server_release() */
	bool recover;			/* QEMU is in postcopy-paused already; begin in PAGES_WAITING */
	double first_seconds;		/* in which requests count as the guest's working set */
	void (*changed)(void *arg, enum page_server_state state);	/* the server's thread */
	void (*progress)(void *arg);	/* the server's thread, at most 20 times a second */
	void *arg;
};

/*
 * @pages: all that have content; @sent, @left: of these, what QEMU has or is being sent, and the
 * rest; @zeros: zero pages that were sent because they, or pages near them, were asked for
 * @preferred, @preferred_left: pages with content of the preferred ranges, and those that were not sent
 * @latency_*: of requests, from their arrival until the page was handed to the socket, microseconds
 */
struct page_server_status {
	enum page_server_state state;
	uint64_t pages, sent, left, zeros, bytes_sent;
	uint64_t preferred, preferred_left;
	uint64_t requests, connections;
	uint32_t latency_p50, latency_p99, latency_max;
	uint64_t bandwidth;
};

/*
 * Opens the image and checks that it can be served this way. TP_EUNSUPPORTED: it cannot, the RAM
 * block that is in the way is named; an eager restore may still do.
 */
struct page_server *page_server_new(const struct page_server_options *o, struct tp_error *err);
void page_server_free(struct page_server *s);
const struct image *page_server_image(const struct page_server *s);

/*
 * These are sent before all others, in this order, once the guest runs; `changed` is called once more
 * when all of them were. Only before page_server_run(). Ranges that do not exist, or that are too many,
 * are passed over.
 */
void page_server_prefer(struct page_server *s, const struct image_pages *ranges, unsigned n);
/*
 * The guest's working set: what its devices and, in its first seconds, itself asked for, in order of
 * first use, then those that were preferred (which are not asked for, as they are there), all bounded
 * by page_asked.h. The first seconds begin with the first request after the devices were loaded, and
 * once more with page_server_running(). A server with `recover` tells only what was preferred. After
 * page_server_run(). Returns how many.
 */
unsigned page_server_asked(struct page_server *s, struct image_pages *ranges, unsigned room);

/* Any thread. A connected socket, taken: the first one, or a new one after the connection broke. */
void page_server_stream(struct page_server *s, int fd_owned);
void page_server_release(struct page_server *s);			/* any thread */
/* The guest was continued; only the first time counts. Any thread. */
void page_server_running(struct page_server *s);
void page_server_bandwidth(struct page_server *s, uint64_t bytes);	/* any thread */
void page_server_stop(struct page_server *s);				/* any thread */
void page_server_status(struct page_server *s, struct page_server_status *status);	/* any thread */

/*
 * Serves until QEMU has everything, or was stopped (TP_ECANCELLED), or it cannot go on: before
 * PAGES_LOADING by the end of the connection, later only by damage of the image. *damage (may be
 * NULL) then says what is lost; its frame is IMAGE_NO_FRAME if that is not the reason. The
 * connection is open until page_server_free(), so that the reason can be told before QEMU sees it.
 */
bool page_server_run(struct page_server *s, struct image_damage *damage, struct tp_error *err);

#endif
