/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* verbs_pool.c - Verbs on pools */
#include "engine/api.h"
#include "engine/engine.h"

void api_query_pools(struct api_call *call)
{
	api_reply(call, pools_describe(api_engine(call)->pools));
}
