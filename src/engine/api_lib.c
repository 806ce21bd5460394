/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * api_lib.c - What the public header offers without an engine: version, schema, log
 */
#include "torpor.h"

#include "base/tp_log.h"
#include "engine/api.h"

static struct {
	void (*fn)(void *arg, int level, const char *source, const char *text);
	void *arg;
} host_log;

const char *torpor_version(void)
{
	return TP_VERSION;
}

json_t *torpor_schema(void)
{
	return api_schema_full();
}

static void to_host(void *arg, enum tp_level level, const char *source, const char *text)
{
	(void)arg;
	host_log.fn(host_log.arg, (int)level, source, text);
}

void torpor_set_log(void (*fn)(void *arg, int level, const char *source, const char *text), void *arg,
		    int level)
{
	int lowest = TP_LOG_ERROR, highest = TP_LOG_TRACE;

	tp_log_set_sink(NULL, NULL);
	host_log.fn = fn;
	host_log.arg = arg;
	tp_log_set_level((enum tp_level)(level < lowest ? lowest : level > highest ? highest : level));
	if (fn)
		tp_log_set_sink(to_host, NULL);
}
