/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* vm_condition.c - A condition of a VM that is found out and kept: its transitions are told */
#include "engine/vm_condition.h"

#include <stdio.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_time.h"
#include "engine/api.h"
#include "engine/vm.h"

TP_LOG_SOURCE("engine.vm");

json_t *vm_condition_json(const struct vm *vm, const struct vm_condition *c, const char *type)
{
	char at[TP_TIME_TEXT];

	return json_pack("{s:s, s:s, s:s, s:s, s:s}", "type", type, "status", c->status ? c->status : "Unknown",
			 "reason", c->reason ? c->reason : "Pending", "message", c->message, "last-transition",
			 tp_time_format(c->status ? c->since_us : vm->since_us, at));
}

void vm_condition_set(struct vm *vm, struct vm_condition *c, const char *type, const char *status,
		      const char *reason, const char *message)
{
	bool same = c->status && strcmp(c->status, status) == 0;
	bool told = same && strcmp(c->reason, reason) == 0;
	json_t *data;

	if (!same)
		c->since_us = tp_now_us();
	c->status = status;
	c->reason = reason;
	snprintf(c->message, sizeof(c->message), "%s", message);
	if (told)
		return;
	tp_info("vm=%s %s %s/%s %s", vm->name, type, status, reason, message);
	data = vm_condition_json(vm, c, type);
	tp_json_set_str(data, "vm", vm->name);
	api_event(vm->t, "CONDITION", vm->name, false, data);
}
