/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* engine_hooks.h - What the API layer needs of the engine */
#ifndef ENGINE_HOOKS_H
#define ENGINE_HOOKS_H

#include <jansson.h>

struct api_state;
struct ev_loop;
struct torpor;

struct api_state *engine_api(struct torpor *t);
struct ev_loop *engine_loop(struct torpor *t);
json_t *engine_version_info(struct torpor *t);	/* {instance, host, pid, started} */
json_t *engine_host_info(struct torpor *t);	/* query-host: {draining, memory, pools, qemu} */

#endif
