/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * vm_monitor.c - QEMU's monitor and the guest agent's channel of one VM
 *
 * Theory of operation. Connected -> negotiated -> schema (features) -> status ->
 * ready. A greeting alone is no sign of life, it comes from QEMU's monitor
 * thread: ready means that commands were answered. A monitor that closes while
 * the process lives is connected again once a second; what waits for it is told.
 * The status is read after each event that may change it (state is read, not
 * guessed): one query at a time, another one when events came meanwhile.
 */
#include "engine/vm_monitor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_log.h"
#include "base/tp_sock.h"
#include "base/tp_time.h"
#include "engine/api.h"
#include "engine/engine.h"
#include "engine/ops.h"
#include "engine/prefetch.h"
#include "engine/recover.h"
#include "engine/spec.h"
#include "engine/standing.h"

TP_LOG_SOURCE("engine.monitor");

#define RETRY_EVERY 1.0		/* seconds */

/* --- status --- */

static void status_reply(void *arg, const json_t *reply, const json_t *qemu_error, const struct tp_error *err)
{
	struct vm_qemu *q = arg;
	const char *status = tp_json_str(reply, "status");
	bool again = q->status_polls > 1;

	(void)qemu_error;
	q->status_polls = 0;
	/* Unanswered for long is no answer: asked again, or a former state would stand for ever. */
	if (err && err->code == TP_ETIMEOUT)
		vm_poll_status(q->vm);
	if (err || !status)
		return;
	if (strcmp(q->status, status) != 0)
		tp_debug("vm=%s qemu-status %s -> %s", q->vm->name, q->status, status);
	snprintf(q->status, sizeof(q->status), "%s", status);
	if (!q->ready && q->schema_known) {
		q->ready = true;
		q->lost_at = 0;
		q->vm->silence_told = false;
		vm_monitor_ready(q);
		recover_settled(q->vm);
	}
	if (again)
		vm_poll_status(q->vm);
	vm_refresh(q->vm);
}

void vm_poll_status(struct vm *vm)
{
	struct vm_qemu *q = vm->qemu;

	if (!q || !q->qmp)
		return;
	if (q->status_polls++)
		return;
	if (!qmp_client_send(q->qmp, QMP_QUERY_STATUS, NULL, NULL, 0, status_reply, q, NULL))
		q->status_polls = 0;
}

void vm_status_is(struct vm *vm, const char *status)
{
	if (!vm->qemu)
		return;
	snprintf(vm->qemu->status, sizeof(vm->qemu->status), "%s", status);
	vm_refresh(vm);
}

/* --- getting ready --- */

void vm_monitor_ready(struct vm_qemu *q)
{
	uint64_t token = q->connect_token;
	tp_autojson json_t *data = NULL;

	standing_ask(q->vm);
	if (!token)
		return;
	q->connect_token = 0;
	data = json_pack("{s:{s:i, s:i, s:i}, s:s, s:s}", "version", "major", q->major, "minor", q->minor,
			 "micro", q->micro, "package", q->package, "status", q->status);
	vm_answer(q->vm, q->waiting, token, "connect", data, NULL);
}

static void connect_failed(struct vm_qemu *q, const struct tp_error *err)
{
	uint64_t token = q->connect_token;

	q->connect_token = 0;
	if (token)
		vm_answer(q->vm, q->waiting, token, "connect", NULL, err);
}

static void schema_reply(void *arg, const json_t *reply, const json_t *qemu_error, const struct tp_error *err)
{
	struct vm_qemu *q = arg;
	struct tp_error why = TP_ERROR_INIT;
	struct qmp_schema *schema;

	(void)qemu_error;
	q->schema_asked = false;
	if (err)
		return;		/* closed() follows, the timer asks again, or the step's limit ends it */
	schema = qmp_schema_new(reply, &why);
	if (!schema) {
		connect_failed(q, &why);
		return;
	}
	qmp_features_of(schema, &q->features);
	qmp_schema_free(schema);
	features_keep(&q->vm->t->features, q->proc.pid, &q->features);
	features_store(q->vm->t);
	q->schema_known = true;
}

static void channel_is_there(struct vm_qemu *q);
static void chardevs_known(void *arg, const json_t *reply, const json_t *qemu_error, const struct tp_error *err);

/* Asks what is not known yet; the status after the schema, so that ready has both. */
static void get_ready(struct vm_qemu *q)
{
	if (!q->schema_known)
		q->schema_known = features_recall(&q->vm->t->features, q->proc.pid, &q->features);
	if (!q->schema_known && !q->schema_asked)
		q->schema_asked = qmp_client_send(q->qmp, QMP_QUERY_SCHEMA, NULL, NULL, 0, schema_reply, q, NULL);
	vm_poll_status(q->vm);
}

static void on_ready(struct qmp_client *c, void *arg)
{
	struct vm_qemu *q = arg;
	const char *package = tp_json_str(tp_json_path(qmp_client_greeting(c), "version"), "package");

	qmp_client_version(c, &q->major, &q->minor, &q->micro);
	snprintf(q->package, sizeof(q->package), "%s", package ? package : "");
	q->status_polls = 0;
	get_ready(q);
	channel_is_there(q);
	if (q->adopted)
		qmp_client_send(c, QMP_QUERY_CHARDEV, NULL, NULL, 0, chardevs_known, q, NULL);
}

static void on_closed(struct qmp_client *c, const struct tp_error *why, void *arg)
{
	struct vm_qemu *q = arg;
	struct vm *vm = q->vm;

	(void)c;
	q->ready = q->schema_known = q->schema_asked = false;
	q->status_polls = 0;
	qmp_client_free(TP_STEAL(q->qmp));
	if (q->exited) {
		vm_process_over(q);
		return;
	}
	if (!q->lost_at)
		q->lost_at = tp_now_mono();
	if (q->shutdown_reason[0] || q->dying)
		return;		/* its end is on the way */
	tp_warn("vm=%s monitor closed: %s", vm->name, why ? why->text : "end of file");
	if (why && strcmp(tp_error_class(why), "MonitorBusy") == 0)
		connect_failed(q, why);
	vm_monitor_retry(q);
	vm_refresh(vm);
}

static void on_event(struct qmp_client *c, const char *name, const json_t *data, void *arg);

static const struct qmp_client_ops monitor_ops = { .ready = on_ready, .event = on_event, .closed = on_closed };

bool vm_monitor_connect(struct vm_qemu *q, struct tp_error *err)
{
	struct tp_error why = TP_ERROR_INIT;
	char path[128];
	int fd = tp_connect_unix(launch_socket(q->vm, "qmp", path, sizeof(path)), true, &why);

	if (fd < 0)
		return tp_fail_class(err, TP_ESYS, "IOError", "VM %s: its monitor does not answer: %s",
				     q->vm->name, why.text);
	q->qmp = qmp_client_new(q->vm->t->loop, &fd, q->vm->name, &monitor_ops, q);
	return q->qmp || tp_fail_nomem(err);
}

static void retry_cb(struct ev_loop *loop, struct ev_timer *w, int events)
{
	struct vm_qemu *q = w->data;
	struct tp_error err = TP_ERROR_INIT;

	(void)events;
	if (q->ready || q->exited)
		ev_timer_stop(loop, w);
	else if (!q->qmp)
		vm_monitor_connect(q, &err);
	else if (qmp_client_is_ready(q->qmp))
		get_ready(q);
	if (q->lost_at && tp_now_mono() - q->lost_at > RECOVER_SILENCE) {
		recover_settled(q->vm);
		vm_refresh(q->vm);
	}
}

void vm_monitor_init(struct vm_qemu *q)
{
	ev_init(&q->retry, retry_cb);
}

void vm_monitor_retry(struct vm_qemu *q)
{
	if (!q->lost_at)
		q->lost_at = tp_now_mono();
	ev_timer_stop(q->vm->t->loop, &q->retry);
	ev_timer_set(&q->retry, RETRY_EVERY, RETRY_EVERY);
	ev_timer_start(q->vm->t->loop, &q->retry);
}

void vm_monitor_close(struct vm_qemu *q)
{
	qmp_client_free(TP_STEAL(q->qmp));
	qga_client_free(TP_STEAL(q->qga));
}

/* --- the agent --- */

static void set_agent(struct vm_qemu *q, enum agent_state state)
{
	static const char *const names[] = { "none", "connected", "unresponsive" };

	if (q->agent == state)
		return;
	q->agent = state;
	api_event(q->vm->t, "AGENT", q->vm->name, false,
		  json_pack("{s:s, s:s}", "vm", q->vm->name, "agent", names[state]));
}

static void agent_closed(struct qga_client *c, const struct tp_error *why, void *arg)
{
	struct vm_qemu *q = arg;

	(void)c, (void)why;
	qga_client_free(TP_STEAL(q->qga));
	set_agent(q, AGENT_UNRESPONSIVE);
}

/* Until the guest opens it. */
static void channel_is_there(struct vm_qemu *q)
{
	tp_autojson json_t *agent = launch_channel(q->vm, "agent");

	if (json_is_string(agent) && q->agent == AGENT_NONE)
		set_agent(q, AGENT_UNRESPONSIVE);
}

static const struct qga_client_ops agent_ops = { .closed = agent_closed };

struct qga_client *vm_agent(struct vm *vm, struct tp_error *err)
{
	tp_autojson json_t *agent = launch_channel(vm, "agent");
	struct vm_qemu *q = vm->qemu;
	struct tp_error why = TP_ERROR_INIT;
	const char *path = json_string_value(agent);
	char own[128];
	int fd;

	if (!path) {
		tp_fail_class(err, TP_ESTATE, "AgentUnavailable", "VM %s has no guest agent channel: set "
			      "spec.launch.agent", vm->name);
		return NULL;
	}
	if (!q) {
		tp_fail_class(err, TP_ESTATE, "AgentUnavailable", "VM %s is not running", vm->name);
		return NULL;
	}
	if (q->qga)
		return q->qga;
	if (strcmp(path, "auto") == 0)
		path = launch_socket(vm, "agent", own, sizeof(own));
	tp_autofree char *expanded = launch_expand(vm, path, NULL, err);
	fd = expanded ? tp_connect_unix(expanded, true, &why) : -1;
	if (fd < 0) {
		tp_fail_class(err, TP_ESYS, "AgentUnavailable", "VM %s: %s", vm->name, why.text);
		return NULL;
	}
	q->qga = qga_client_new(vm->t->loop, &fd, vm->name, &agent_ops, q);
	if (!q->qga)
		tp_fail_nomem(err);
	return q->qga;
}

/* An adopted QEMU sends no VSERPORT_CHANGE for a port that is open already; its chardev tells. */
static void chardevs_known(void *arg, const json_t *reply, const json_t *qemu_error, const struct tp_error *err)
{
	struct vm_qemu *q = arg;
	tp_autojson json_t *agent = launch_channel(q->vm, "agent");
	const char *configured = json_string_value(agent);
	json_t *entry;
	size_t i;

	(void)qemu_error;
	json_array_foreach(err || !configured ? NULL : reply, i, entry) {
		const char *label = tp_json_str(entry, "label"), *file = tp_json_str(entry, "filename");
		bool ours = strcmp(configured, "auto") == 0 ? label && strcmp(label, "torpor-agent") == 0
							    : file && strstr(file, configured);

		if (!ours || !tp_json_bool(entry, "frontend-open", false))
			continue;
		q->agent_open = true;
		set_agent(q, AGENT_CONNECTED);
	}
}

static void on_vserport(struct vm_qemu *q, const json_t *data)
{
	const char *id = tp_json_str(data, "id");
	tp_autojson json_t *agent = launch_channel(q->vm, "agent");
	const char *configured = json_string_value(agent);
	bool ours = id && configured && (strcmp(configured, "auto") != 0 || strcmp(id, "torpor-agent") == 0);

	if (!ours)
		return;
	q->agent_open = tp_json_bool(data, "open", false);
	if (q->qga)
		qga_client_desync(q->qga);
	set_agent(q, q->agent_open ? AGENT_CONNECTED : AGENT_UNRESPONSIVE);
}

/* --- events --- */

static void tell(struct vm_qemu *q, const char *event, const json_t *data)
{
	json_t *copy = data ? json_deep_copy(data) : json_object();

	tp_json_set_str(copy, "vm", q->vm->name);
	api_event(q->vm->t, event, q->vm->name, false, copy);
}

static void on_shutdown(struct vm_qemu *q, const json_t *data)
{
	const char *reason = tp_json_str(data, "reason");

	if (q->shutdown_reason[0])
		return;		/* a second one after SIGTERM says nothing new */
	q->shutdown_guest = tp_json_bool(data, "guest", false);
	snprintf(q->shutdown_reason, sizeof(q->shutdown_reason), "%s", reason ? reason : "unknown");
	/* Should the engine not see the process end, the next one knows why it did. */
	vm_rest_set(q->vm, "shutdown", json_pack("{s:b, s:s}", "guest", q->shutdown_guest, "reason",
						 q->shutdown_reason));
	vm_rest_save(q->vm);
}

static bool changes_status(const char *name)
{
	static const char *const names[] = { "STOP", "RESUME", "RESET", "SUSPEND", "WAKEUP", "GUEST_PANICKED",
					     "WATCHDOG", "BLOCK_IO_ERROR", "MIGRATION", "DUMP_COMPLETED" };

	for (size_t i = 0; i < TP_N(names); i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

/* A DIMM that the guest took or gave up, or that was just plugged, by whichever monitor. */
static bool changes_memory(const char *name)
{
	return strcmp(name, "ACPI_DEVICE_OST") == 0 || strcmp(name, "DEVICE_DELETED") == 0 ||
	       strcmp(name, "MEMORY_DEVICE_SIZE_CHANGE") == 0;
}

static void on_event(struct qmp_client *c, const char *name, const json_t *data, void *arg)
{
	struct vm_qemu *q = arg;
	struct vm *vm = q->vm;
	struct op_event ev = { .type = OP_QEMU_EVENT, .name = name, .data = data };

	(void)c;
	if (strcmp(name, "SHUTDOWN") == 0) {
		on_shutdown(q, data);
	} else if (strcmp(name, "VSERPORT_CHANGE") == 0) {
		on_vserport(q, data);
	} else if (strcmp(name, "GUEST_PANICKED") == 0) {
		q->panicked = true;
		tell(q, "VM_GUEST_PANICKED", data);
	} else if (strcmp(name, "WATCHDOG") == 0) {
		tell(q, "VM_WATCHDOG", data);
	} else if (strcmp(name, "BLOCK_IO_ERROR") == 0) {
		tell(q, "VM_IO_ERROR", data);
	} else if (strcmp(name, "RESET") == 0) {
		q->panicked = false;
	} else if (strcmp(name, "MIGRATION") == 0 && tp_json_str(data, "status")) {
		prefetch_migration_is(vm, tp_json_str(data, "status"));
	} else if (strcmp(name, "RESUME") == 0) {
		prefetch_resumed(vm);
	}
	api_event(vm->t, "QEMU_EVENT", vm->name, false,
		  json_pack("{s:s, s:s, s:O}", "vm", vm->name, "event", name, "data", data));
	if (changes_status(name))
		vm_poll_status(vm);
	if (changes_memory(name))
		standing_ask(vm);
	if (vm->op)
		op_deliver(vm->op, &ev);
}
