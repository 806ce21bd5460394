/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* prefetch_priv.h - Shared by prefetch.c and prefetch_recover.c */
#ifndef ENGINE_PREFETCH_PRIV_H
#define ENGINE_PREFETCH_PRIV_H

#include <ev.h>

#include "engine/engine.h"
#include "engine/mover.h"
#include "engine/prefetch.h"

struct prefetch {
	struct vm *vm;
	struct mover *server;		/* NULL: it has ended */
	json_t *status;			/* as the server last said; or NULL */
	json_t *damage;			/* of the image, which ended the server for good */
	char message[TP_TEXT_SIZE];	/* why the memory does not come; "" */
	bool away;			/* QEMU has no server, or no connection with it */
	bool finished;			/* all is in; the restore's record is not written yet */
	bool done;			/* the server's last word: it is to end now */
	bool damaged;
	bool hurried;			/* the limit is lifted */
	uint64_t waited_pages;		/* sent, when the operation that waits looked last */
	double preferred_at, whole_at;	/* seconds from the command; 0: not yet */
	double rate_at;			/* monotonic */
	uint64_t rate_pages;
	double rate;			/* bytes a second */

	/* Another server, another connection */
	struct ev_timer again;
	double backoff;
	unsigned restarts;
	bool opening;			/* the image, on its pool's worker */
	bool asked;			/* migrate-recover is on its way */
};

json_t *prefetch_record(const struct prefetch *p);	/* rest "prefetch"; borrowed */
void prefetch_note(struct vm *vm, const char *key, json_t *value_owned);	/* in it; vm_rest_save() follows */
const char *prefetch_state(const struct prefetch *p);	/* of the server; "" */
void prefetch_set_away(struct prefetch *p, bool away);
void prefetch_completed(struct prefetch *p);		/* frees it, or waits for the restore's end */
extern const struct mover_ops prefetch_server_ops;

/* prefetch_recover.c */
void prefetch_recover_init(struct prefetch *p);
void prefetch_recover_stop(struct prefetch *p);
void prefetch_lost(struct prefetch *p, const char *why);	/* the server has ended too early */
void prefetch_wants_stream(struct prefetch *p);	/* it lives, without a connection to QEMU */
void prefetch_end_left(struct vm *vm);		/* a server that nobody watches */
void prefetch_take_up(struct prefetch *p);		/* after a restart of the engine */

#endif
