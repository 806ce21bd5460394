/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * api_state.h - What the API keeps for one engine: clients, connections, calls, event state
 */
#ifndef API_STATE_H
#define API_STATE_H

struct api_state;
struct torpor;

/* engine_loop(t) must answer by then; engine_api(t) gives the result from then on. */
struct api_state *api_state_new(struct torpor *t);
/*
 * Closes all connections and frees all clients and the calls that were not answered; no handler
 * may touch one of these calls any more.
 */
void api_state_free(struct api_state *api);

#endif
