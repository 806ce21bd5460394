/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cli_follow.c - Operations from their request to their end
 *
 * Theory of operation: a task is one name. It goes WAITING, ASKED (its command is sent), RUNNING (the
 * operation's id is known; operation-wait is sent) and ENDED. Events carry phases and progress; the end comes
 * as the answer of operation-wait, so that no event that was left out can hold anything up. Only "stuck" is
 * taken from an event, as torpord does not answer operation-wait then.
 *
 * At most WINDOW tasks are on their way: torpord reads no further once a connection has 64 requests
 * unanswered, and a cancel must always get through. Each task has three request ids, by what is asked.
 *
 * Ctrl-C: what was not sent is given up, every running operation gets operation-cancel, and the roll-backs are
 * waited for. One past its commit point refuses, and is waited for, too. A second Ctrl-C leaves.
 */
#include "cli_follow.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_size.h"
#include "base/tp_time.h"
#include "cli_damage.h"
#include "cli_dry.h"
#include "cli_out.h"
#include "cli_progress.h"
#include "cli_record.h"

#define WINDOW 24
#define FILTER_MAX 1000		/* names that event-filter takes */
#define PHASE_SIZE 40
#define ID_SIZE 129

enum stage { WAITING, ASKED, RUNNING, ENDED };
enum asked { ASK_COMMAND, ASK_WAIT, ASK_CANCEL, ASK_LOOK, ASKS };

/*
 * @record: as the last event or answer had it, or NULL; @percent: never falls
 * @status, @value: what came of it; @returned: value is no error, whatever the status
 */
struct task {
	const char *name;
	enum stage stage;
	char id[ID_SIZE], phase[PHASE_SIZE];
	bool begun;			/* it was more than looked at */
	json_t *record;
	double percent, started;
	enum cli_status status;
	json_t *value;
	bool returned;
};

struct follow {
	struct cli *cli;
	const char *command;		/* NULL: operations that are there */
	const char *member;		/* its argument that a name goes as */
	const json_t *arguments;
	json_t *(*value)(const json_t *record);
	struct task *tasks;
	size_t n, ended, under_way, next, window;
	bool interrupted, left;
	int signals;
	double until;
	struct tp_error err;		/* of the connection */
};

static bool detaches(const struct follow *f)
{
	return f->command && (cli_flag(f->cli, "detach") || cli_flag(f->cli, "dry-run"));
}

static bool ask(struct follow *f, const struct task *t, enum asked what, const char *command,
		json_t *arguments_owned)
{
	json_int_t id = (json_int_t)(t - f->tasks) * ASKS + what;

	return cli_conn_ask(f->cli->conn, id, command, arguments_owned, &f->err);
}

/* --- progress --- */

static double figure(const json_t *record, const char *name)
{
	return tp_json_num(json_object_get(record, "progress"), name, -1);
}

/* Phases in which the bytes move that the figures are of. */
static bool is_moving(const char *phase)
{
	static const char *const moving[] = { "Saving", "Loading", "Prefetching", "Copying", "Verifying" };

	for (size_t i = 0; i < TP_N(moving); i++)
		if (strcmp(moving[i], phase) == 0)
			return true;
	return false;
}

/*
 * What was done before turning back says nothing of how long that takes, and the rate at which bytes moved
 * nothing of a phase that waits for a disk.
 */
static void one_figures(const struct task *t, struct cli_figures *f)
{
	bool back = strcmp(t->phase, "RollingBack") == 0, moving = is_moving(t->phase);

	*f = (struct cli_figures){
		.label = t->name, .phase = t->phase, .done = figure(t->record, "done-bytes"),
		.total = figure(t->record, "total-bytes"), .percent = back ? -1 : t->percent,
		.rate = moving ? figure(t->record, "rate") : -1, .eta = moving ? figure(t->record, "eta") : -1,
		.elapsed = tp_now_mono() - t->started,
	};
}

static void add_up(double *sum, double value)
{
	if (value > 0)
		*sum += value;
}

/* All tasks as one: sums, the longest time left, percent as the mean over all. */
static void sum_figures(const struct follow *f, struct cli_figures *sum, char label[PHASE_SIZE])
{
	snprintf(label, PHASE_SIZE, "%zu of %zu", f->ended, f->n);
	*sum = (struct cli_figures){ .label = label, .phase = "done", .eta = -1, .elapsed = -1 };
	for (size_t i = 0; i < f->n; i++) {
		const struct task *t = &f->tasks[i];
		double eta = figure(t->record, "eta");

		add_up(&sum->percent, t->stage == ENDED ? 100 : t->percent);
		add_up(&sum->done, figure(t->record, "done-bytes"));
		add_up(&sum->total, figure(t->record, "total-bytes"));
		if (t->stage == RUNNING)
			add_up(&sum->rate, figure(t->record, "rate"));
		if (t->stage == RUNNING && eta > sum->eta)
			sum->eta = eta;
		if (t->started > 0 && tp_now_mono() - t->started > sum->elapsed)
			sum->elapsed = tp_now_mono() - t->started;
	}
	sum->percent /= (double)f->n;
}

/*
 * Lines stay. What is refused while it is looked at, and turns back without having touched anything, has
 * its error to tell and no phases; unless that takes so long that one asks what it is at.
 */
static bool is_worth_a_line(const struct task *t)
{
	return t->begun || tp_now_mono() - t->started >= CLI_P_LINE_INTERVAL;
}

static void show(const struct follow *f, const struct task *t, bool news)
{
	char label[PHASE_SIZE];
	struct cli_figures figures;

	if (cli_progress_mode() == CLI_P_LINES && (!t || !is_worth_a_line(t)))
		return;
	if (cli_progress_mode() == CLI_P_BAR && f->n > 1)
		sum_figures(f, &figures, label);
	else if (t && t->stage == RUNNING)
		one_figures(t, &figures);
	else
		return;
	cli_progress_show(&figures, news);
}

/* The bar's last sight is a full one. */
static void show_whole(const struct follow *f, struct task *t)
{
	t->percent = t->percent >= 0 ? 100 : t->percent;
	if (cli_progress_mode() == CLI_P_BAR)
		show(f, t, false);
}

/* Without news: the bar's clock goes on. */
static void show_again(const struct follow *f)
{
	for (size_t i = 0; i < f->n; i++)
		if (f->tasks[i].stage == RUNNING) {
			show(f, &f->tasks[i], false);
			return;
		}
}

/* --- the end of a task --- */

static void end_task(struct follow *f, struct task *t, enum cli_status status, const json_t *value)
{
	if (t->stage == ENDED)
		return;
	if (t->stage != WAITING)
		f->under_way--;
	t->stage = ENDED;
	t->status = status;
	t->value = json_incref((json_t *)value);
	f->ended++;
}

static void end_by_error(struct follow *f, struct task *t, const json_t *error)
{
	enum cli_status status = cli_error(f->n > 1 || f->command ? t->name : NULL, error, false);

	if (f->cli->format != CLI_F_JSON)
		cli_say_damage(error, t->name);
	end_task(f, t, f->command ? cli_refusal(f->cli, error, status) : status, error);
}

static void end_by_record(struct follow *f, struct task *t, json_t *record)
{
	const char *status = tp_json_str(record, "status");
	tp_autojson json_t *error = NULL;

	cli_record_warnings(t->name, record);
	if (status && strcmp(status, "succeeded") == 0) {
		tp_autojson json_t *value = f->value ? f->value(record) : json_incref(record);

		show_whole(f, t);
		if (!f->cli->quiet && f->cli->format != CLI_F_JSON)
			cli_record_say(t->name, record);
		end_task(f, t, CLI_DONE, value);
		return;
	}
	error = cli_record_error(record);
	if (status && strcmp(status, "cancelled") == 0 && !json_object_get(record, "error")) {
		tp_json_set_str(error, "class", "Cancelled");
		tp_json_set_str(error, "desc", "cancelled; the VM is as it was");
	}
	end_by_error(f, t, error);
	if (status && strcmp(status, "stuck") == 0)
		cli_note("%s: %s is stuck and goes on trying; see torpor op show %s", t->name, t->id, t->id);
}

/* --- news --- */

static void take_record(struct follow *f, struct task *t, json_t *record)
{
	const char *phase = tp_json_str(record, "phase"), *status = tp_json_str(record, "status");
	double percent = figure(record, "percent");
	bool news = phase && strcmp(phase, t->phase) != 0;

	json_decref(t->record);
	t->record = json_incref(record);
	if (news)
		snprintf(t->phase, sizeof(t->phase), "%s", phase);
	if (phase && strcmp(phase, "Preparing") != 0 && strcmp(phase, "RollingBack") != 0)
		t->begun = true;
	if (percent > t->percent)
		t->percent = percent > 100 ? 100 : percent;
	if (status && strcmp(status, "stuck") == 0)
		end_by_record(f, t, record);
	else if (!status || strcmp(status, "running") == 0)
		show(f, t, news);
}

/* --- answers --- */

static void cancel(struct follow *f, struct task *t)
{
	ask(f, t, ASK_CANCEL, "operation-cancel", json_pack("{s:s}", "id", t->id));
}

/* Blockers are errors, the rest is what was asked for. */
static void dry_run_done(struct follow *f, struct task *t, json_t *answer)
{
	bool ok = tp_json_bool(answer, "ok", false), silent = f->cli->quiet || f->cli->format == CLI_F_JSON;
	json_t *blocker;
	size_t i;

	json_array_foreach(json_object_get(answer, "blockers"), i, blocker)
		cli_error(t->name, blocker, false);
	if (!silent && tp_json_bool(answer, "unchanged", false))
		cli_say("%s: nothing to do", t->name);
	else if (!silent)
		cli_say("%s: %s", t->name, ok ? "nothing is in the way" : "cannot be done now");
	if (!silent)
		cli_say_dry(answer);
	else
		cli_record_warnings(t->name, answer);
	t->returned = true;
	end_task(f, t, cli_dry_status(answer), answer);
}

static void accepted(struct follow *f, struct task *t, json_t *answer)
{
	const char *id = tp_json_str(answer, "operation");

	if (f->command && cli_flag(f->cli, "dry-run")) {
		dry_run_done(f, t, answer);
		return;
	}
	if (!id || strlen(id) >= sizeof(t->id)) {
		end_task(f, t, CLI_DONE, answer);
		return;
	}
	snprintf(t->id, sizeof(t->id), "%s", id);
	if (detaches(f)) {
		if (f->cli->format != CLI_F_JSON)
			cli_say("%s", id);
		end_task(f, t, CLI_DONE, answer);
		return;
	}
	t->stage = RUNNING;
	ask(f, t, ASK_WAIT, "operation-wait", json_pack("{s:s}", "id", id));
	if (f->interrupted)
		cancel(f, t);
}

static void cancel_refused(const struct task *t, const json_t *error)
{
	const char *desc = tp_json_str(error, "desc");

	if (t->stage == RUNNING)
		cli_note("%s: cannot be cancelled any more, it is completed: %s", t->name, desc ? desc : "");
}

static void take_answer(struct follow *f, struct task *t, enum asked what, const json_t *message)
{
	json_t *error = json_object_get(message, "error"), *value = json_object_get(message, "return");

	if (t->stage == ENDED)
		return;
	if (what == ASK_CANCEL && error)
		cancel_refused(t, error);
	else if (what == ASK_CANCEL)
		return;
	else if (error)
		end_by_error(f, t, error);
	else if (what == ASK_COMMAND)
		accepted(f, t, value);
	else if (what == ASK_LOOK)
		take_record(f, t, value);
	else
		end_by_record(f, t, value);
}

static struct task *task_of_operation(struct follow *f, const char *id)
{
	for (size_t i = 0; i < f->n && id; i++)
		if (f->tasks[i].stage == RUNNING && strcmp(f->tasks[i].id, id) == 0)
			return &f->tasks[i];
	return NULL;
}

/* Events were left out: that an operation is stuck could have been one of them. */
static void look_at_all(struct follow *f)
{
	for (size_t i = 0; i < f->n; i++)
		if (f->tasks[i].stage == RUNNING)
			ask(f, &f->tasks[i], ASK_LOOK, "query-operation", json_pack("{s:s}", "id", f->tasks[i].id));
}

static void take_message(struct follow *f, const json_t *message)
{
	const char *event = tp_json_str(message, "event");
	json_t *data = json_object_get(message, "data");
	int64_t id = tp_json_int(message, "id", -1);
	struct task *t = NULL;

	if (event && strcmp(event, "OPERATION") == 0)
		t = task_of_operation(f, tp_json_str(data, "id"));
	if (event && strcmp(event, "EVENTS_LOST") == 0)
		look_at_all(f);
	else if (t)
		take_record(f, t, data);
	else if (!event && id >= 0 && (uint64_t)id < f->n * ASKS)
		take_answer(f, &f->tasks[id / ASKS], (enum asked)(id % ASKS), message);
}

/* --- asking --- */

static void begin_task(struct follow *f, struct task *t)
{
	json_t *arguments;

	t->started = tp_now_mono();
	f->under_way++;
	if (!f->command) {
		snprintf(t->id, sizeof(t->id), "%.128s", t->name);
		t->stage = RUNNING;
		/* If it is stuck, operation-wait does not tell. */
		ask(f, t, ASK_LOOK, "query-operation", json_pack("{s:s}", "id", t->name));
		ask(f, t, ASK_WAIT, "operation-wait", json_pack("{s:s}", "id", t->name));
		return;
	}
	t->stage = ASKED;
	arguments = json_copy((json_t *)f->arguments);
	tp_json_set(arguments, f->member, json_string(t->name));
	ask(f, t, ASK_COMMAND, f->command, arguments);
}

static void fill_window(struct follow *f)
{
	while (f->next < f->n && f->under_way < f->window && f->err.code == TP_OK)
		begin_task(f, &f->tasks[f->next++]);
}

/* --- Ctrl-C --- */

static void interrupt(struct follow *f)
{
	tp_autojson json_t *error = json_pack("{s:s, s:s}", "class", "Cancelled", "desc", "not begun");
	struct signalfd_siginfo info;

	if (read(f->signals, &info, sizeof(info)) != sizeof(info))
		return;
	if (f->interrupted) {
		f->left = true;
		return;
	}
	f->interrupted = true;
	cli_note("cancelling; Ctrl-C again leaves without waiting");
	for (size_t i = 0; i < f->n; i++) {
		struct task *t = &f->tasks[i];

		if (t->stage == RUNNING)
			cancel(f, t);
		else if (t->stage == WAITING)
			end_by_error(f, t, error);
	}
	f->next = f->n;
}

static void open_signals(struct follow *f)
{
	sigset_t set;

	f->signals = -1;
	if (!f->command)
		return;
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	f->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void close_signals(struct follow *f)
{
	sigset_t set;

	if (f->signals < 0)
		return;
	tp_close(&f->signals);
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
}

/* --- all of it --- */

static bool subscribe(struct follow *f)
{
	bool progress = cli_progress_mode() != CLI_P_NONE;
	json_t *arguments = json_pack("{s:[s], s:b}", "events", "OPERATION", "progress", progress);
	tp_autojson json_t *answer = NULL, *error = NULL;

	if (f->command && strcmp(f->member, "name") == 0 && f->n <= FILTER_MAX) {
		json_t *vms = json_array();

		for (size_t i = 0; i < f->n; i++)
			json_array_append_new(vms, json_string(f->tasks[i].name));
		tp_json_set(arguments, "vms", vms);
	}
	answer = cli_conn_call(f->cli->conn, "event-filter", arguments, &error, &f->err);
	/* Refused, for a name that cannot be one: the command tells better. */
	return answer || error;
}

static double next_turn(const struct follow *f)
{
	double draw = cli_progress_mode() == CLI_P_BAR ? tp_now_mono() + CLI_P_BAR_INTERVAL : f->until;

	return f->until > 0 && f->until < draw ? f->until : draw;
}

static bool turn(struct follow *f)
{
	tp_autojson json_t *message = NULL;

	switch (cli_conn_read(f->cli->conn, next_turn(f), f->signals, &message, &f->err)) {
	case CLI_MESSAGE:
		take_message(f, message);
		return true;
	case CLI_OTHER:
		interrupt(f);
		return true;
	case CLI_LATE:
		show_again(f);
		return true;
	case CLI_BROKEN:
		break;
	}
	return false;
}

static void say_left(const struct follow *f)
{
	for (size_t i = 0; i < f->n; i++)
		if (f->tasks[i].stage == RUNNING)
			cli_note("%s goes on without this client; see torpor op wait %s", f->tasks[i].id,
				 f->tasks[i].id);
}

/* CLI_DONE: every task has ended. */
static int run(struct follow *f)
{
	if (!subscribe(f))
		return cli_unreachable(f->cli, &f->err);
	while (f->ended < f->n && !f->left) {
		fill_window(f);
		if (f->err.code != TP_OK || (f->ended < f->n && !turn(f))) {
			say_left(f);
			return cli_unreachable(f->cli, &f->err);
		}
		if (f->until > 0 && tp_now_mono() >= f->until && f->ended < f->n) {
			cli_note("not done in time; it goes on");
			return CLI_TIMED_OUT;
		}
	}
	if (f->left)
		say_left(f);
	return f->left ? CLI_TIMED_OUT : CLI_DONE;
}

/* In the order of the names, not of the ends. */
static int sum_up(const struct follow *f, bool many)
{
	struct cli_tally tally = { 0 };

	for (size_t i = 0; i < f->n; i++) {
		const struct task *t = &f->tasks[i];

		if (t->returned)
			cli_tally_returned(&tally, t->name, t->status, t->value);
		else
			cli_tally_add(&tally, t->name, t->status, t->value);
	}
	return cli_tally_end(f->cli, &tally, many);
}

static int follow(struct follow *f, const struct cli_names *names)
{
	int status = CLI_DONE;

	f->n = names->n;
	f->tasks = calloc(f->n + 1, sizeof(*f->tasks));
	if (!f->tasks)
		abort();
	for (size_t i = 0; i < f->n; i++)
		f->tasks[i] = (struct task){ .name = names->names[i], .percent = -1 };
	cli_progress_begin(f->cli->quiet || detaches(f), f->cli->format == CLI_F_JSON);
	open_signals(f);
	if (f->n > 0)
		status = run(f);
	close_signals(f);
	cli_progress_hide();
	if (status == CLI_DONE)
		status = sum_up(f, names->many);
	for (size_t i = 0; i < f->n; i++) {
		json_decref(f->tasks[i].record);
		json_decref(f->tasks[i].value);
	}
	free(f->tasks);
	return status;
}

int cli_operate(struct cli *cli, const char *command, const json_t *arguments,
		const struct cli_names *names)
{
	struct follow f = { .cli = cli, .command = command, .member = "name", .arguments = arguments,
			    .window = WINDOW };
	int status = cli_online(cli);

	return status == CLI_DONE ? follow(&f, names) : status;
}

int cli_operate_images(struct cli *cli, const char *command, const json_t *arguments,
		       const struct cli_names *ids, bool in_turn, json_t *(*value)(const json_t *record))
{
	struct follow f = { .cli = cli, .command = command, .member = "image", .arguments = arguments,
			    .window = in_turn ? 1 : WINDOW, .value = value };
	int status = cli_online(cli);

	return status == CLI_DONE ? follow(&f, ids) : status;
}

int cli_follow(struct cli *cli, const struct cli_names *ids, double timeout)
{
	struct follow f = { .cli = cli, .window = WINDOW, .until = timeout > 0 ? tp_now_mono() + timeout : 0 };
	int status = cli_online(cli);

	return status == CLI_DONE ? follow(&f, ids) : status;
}
