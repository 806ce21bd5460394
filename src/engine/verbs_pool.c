/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* verbs_pool.c - Verbs on pools */
#include "engine/api.h"
#include "engine/engine.h"

void api_query_pools(struct api_call *call)
{
	api_reply(call, pools_describe(api_engine(call)->pools));
}

void api_pool_define(struct api_call *call)
{
	pools_define(api_engine(call)->pools, call);
}

void api_pool_undefine(struct api_call *call)
{
	pools_undefine(api_engine(call)->pools, call);
}
