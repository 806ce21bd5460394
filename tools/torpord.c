/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * torpord.c - The daemon: one engine, one loop, one socket
 *
 * Everything that torpor does is in the library. Here are options, the
 * configuration, the log, the socket and signals:
 *
 *   SIGTERM, SIGINT  orderly end: no new clients, operations before their commit point are rolled
 *                    back, later ones are left to recovery; VMs go on. A second one ends at once.
 *   SIGHUP           reads the configuration again; what cannot change at run time is named
 *   SIGUSR1          logs the state
 *
 * Exit status: 0 orderly end, 1 could not start or was ended at once, 2 bad usage.
 */
#include <errno.h>
#include <ev.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_log.h"
#include "torpor.h"
#include "torpord_config.h"
#include "torpord_log.h"
#include "torpord_socket.h"
#include "torpord_systemd.h"

TP_LOG_SOURCE("torpord");

#define SHUTDOWN_LIMIT 20.0	/* seconds for rolling back; systemd's TimeoutStopSec is longer */
#define OPEN_FILES 65536	/* wanted limit; a VM needs about six descriptors */

static const char usage_text[] =
	"usage: torpord [OPTION]...\n"
	"\n"
	"Hibernates and restores QEMU virtual machines; clients talk to it over a UNIX socket.\n"
	"Stays in the foreground.\n"
	"\n"
	"  --config FILE                    configuration, JSON with members named as these options\n"
	"  --socket PATH                    where clients connect\n"
	"  --state-dir DIR                  what must outlive the daemon; one daemon a folder\n"
	"  --runtime-dir DIR                sockets of VMs\n"
	"  --pool NAME=DIR[,quota=SIZE]     a folder for memory images; may be given several times\n"
	"  --log-level LEVEL                error, warn, info, debug or trace\n"
	"  --log-format text|json           lines for people or for programs\n"
	"  --check-config                   check configuration and options, then exit\n"
	"  --print-schema                   print commands, events and types as JSON, then exit\n"
	"  --help                           print this\n"
	"  --version                        print the version\n";

struct daemon {
	struct ev_loop *loop;
	struct torpor *torpor;
	json_t *options;
	struct config *config;
	struct sockets *sockets;
	struct ev_signal signals[4];
	bool ending;
	int status;
};

/* --- options --- */

enum option_id {
	OPT_CONFIG = 256, OPT_SOCKET, OPT_STATE_DIR, OPT_RUNTIME_DIR, OPT_POOL, OPT_LOG_LEVEL,
	OPT_LOG_FORMAT, OPT_CHECK_CONFIG, OPT_PRINT_SCHEMA, OPT_HELP, OPT_VERSION,
};

static const struct option long_options[] = {
	{ "config", required_argument, NULL, OPT_CONFIG },
	{ "socket", required_argument, NULL, OPT_SOCKET },
	{ "state-dir", required_argument, NULL, OPT_STATE_DIR },
	{ "runtime-dir", required_argument, NULL, OPT_RUNTIME_DIR },
	{ "pool", required_argument, NULL, OPT_POOL },
	{ "log-level", required_argument, NULL, OPT_LOG_LEVEL },
	{ "log-format", required_argument, NULL, OPT_LOG_FORMAT },
	{ "check-config", no_argument, NULL, OPT_CHECK_CONFIG },
	{ "print-schema", no_argument, NULL, OPT_PRINT_SCHEMA },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

static const char *option_name(int id)
{
	for (const struct option *o = long_options; o->name; o++)
		if (o->val == id)
			return o->name;
	return "";
}

/* Paths of the command line may be relative. */
static json_t *absolute(const char *path)
{
	char cwd[PATH_MAX];

	if (*path == '/' || !*path || !getcwd(cwd, sizeof(cwd)))
		return json_string(path);
	return json_sprintf("%s/%s", cwd, path);
}

static bool take_pool(json_t *options, const char *text, struct tp_error *err)
{
	json_t *pools = json_object_get(options, "pool"), *pool;
	tp_autojson json_t *one = json_object();
	const char *name;

	if (!config_parse_pool(text, one, err))
		return false;
	if (!pools) {
		pools = json_object();
		tp_json_set(options, "pool", pools);
	}
	json_object_foreach(one, name, pool) {
		tp_json_set(pool, "path", absolute(tp_json_str(pool, "path")));
		json_object_set(pools, name, pool);
	}
	return true;
}

static bool take_option(json_t *options, int id, struct tp_error *err)
{
	const char *name = option_name(id);

	switch (id) {
	case OPT_POOL:
		return take_pool(options, optarg, err);
	case OPT_CONFIG:
	case OPT_SOCKET:
	case OPT_STATE_DIR:
	case OPT_RUNTIME_DIR:
		return tp_json_set(options, name, absolute(optarg)) || tp_fail(err, TP_EARG, "--%s: not UTF-8", name);
	default:
		return tp_json_set_str(options, name, optarg) || tp_fail(err, TP_EARG, "--%s: not UTF-8", name);
	}
}

static int usage_error(const char *what)
{
	fprintf(stderr, "torpord: %s; see torpord --help\n", what);
	return 2;
}

static int print_schema(void)
{
	tp_autojson json_t *schema = torpor_schema();

	if (!schema || json_dumpf(schema, stdout, JSON_INDENT(2)) < 0 || puts("") < 0 || fflush(stdout) != 0) {
		fprintf(stderr, "torpord: the schema cannot be printed\n");
		return 1;
	}
	return 0;
}

/* -1: go on; else the exit status. */
static int parse_options(int argc, char *argv[], json_t *options, bool *check)
{
	struct tp_error err = TP_ERROR_INIT;
	char text[128];
	int id;

	opterr = 0;
	while ((id = getopt_long(argc, argv, ":", long_options, NULL)) != -1) {
		switch (id) {
		case OPT_HELP:
			return fputs(usage_text, stdout) < 0;
		case OPT_VERSION:
			return printf("torpord %s (api %d)\n", torpor_version(), TORPOR_API) < 0;
		case OPT_PRINT_SCHEMA:
			return print_schema();
		case OPT_CHECK_CONFIG:
			*check = true;
			break;
		case ':':
		case '?':
			snprintf(text, sizeof(text), "%.80s: %s", argv[optind - 1],
				 id == ':' ? "needs a value" : "no such option, or a value too many");
			return usage_error(text);
		default:
			if (!take_option(options, id, &err))
				return usage_error(err.text);
		}
	}
	if (optind < argc) {
		snprintf(text, sizeof(text), "unexpected argument '%.80s'", argv[optind]);
		return usage_error(text);
	}
	return config_check_options(options, &err) ? -1 : usage_error(err.text);
}

/* --- signals --- */

static void ended(void *arg)
{
	struct daemon *d = arg;

	ev_break(d->loop, EVBREAK_ALL);
}

static void on_end(struct ev_loop *loop, struct ev_signal *w, int revents)
{
	struct daemon *d = w->data;

	(void)revents;
	if (d->ending) {
		tp_warn("ended at once by a second %s", strsignal(w->signum));
		d->status = 1;
		ev_break(loop, EVBREAK_ALL);
		return;
	}
	d->ending = true;
	tp_info("%s: ending; VMs go on", strsignal(w->signum));
	systemd_stopping();
	sockets_close(TP_STEAL(d->sockets));
	torpor_shutdown(d->torpor, SHUTDOWN_LIMIT, ended, d);
}

static void on_reload(struct ev_loop *loop, struct ev_signal *w, int revents)
{
	struct daemon *d = w->data;
	struct tp_error err = TP_ERROR_INIT;
	struct config *config;
	char fixed[128];

	(void)loop;
	(void)revents;
	if (d->ending)
		return;
	systemd_reloading();
	config = config_load(d->options, &err);
	if (config) {
		config_differences(d->config, config, fixed, sizeof(fixed));
		log_setup(config->log_level, config->log_json);
		sockets_configure(d->sockets, config);
		config_free(d->config);
		d->config = config;
		tp_info("the configuration was read again");
		if (*fixed)
			tp_warn("changes of %s take effect when torpord is started again", fixed);
	} else {
		tp_err("the configuration stays as it was: %s", err.text);
	}
	systemd_ready();
}

static void on_state(struct ev_loop *loop, struct ev_signal *w, int revents)
{
	struct daemon *d = w->data;

	(void)loop;
	(void)revents;
	tp_info("%zu connections", torpor_connections(d->torpor));
	torpor_log_state(d->torpor);
}

static void catch_signals(struct daemon *d)
{
	static const struct {
		int number;
		void (*fn)(struct ev_loop *loop, struct ev_signal *w, int revents);
	} caught[] = {
		{ SIGTERM, on_end }, { SIGINT, on_end }, { SIGHUP, on_reload }, { SIGUSR1, on_state },
	};

	signal(SIGPIPE, SIG_IGN);
	for (size_t i = 0; i < TP_N(caught); i++) {
		ev_signal_init(&d->signals[i], caught[i].fn, caught[i].number);
		d->signals[i].data = d;
		ev_signal_start(d->loop, &d->signals[i]);
	}
}

static void release_signals(struct daemon *d)
{
	for (size_t i = 0; i < TP_N(d->signals); i++)
		ev_signal_stop(d->loop, &d->signals[i]);
}

/* --- life --- */

static void raise_file_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= OPEN_FILES)
		return;
	limit.rlim_cur = limit.rlim_max < OPEN_FILES ? limit.rlim_max : OPEN_FILES;
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
		tp_debug("the limit of open files stays: %s", strerror(errno));
}

static bool start(struct daemon *d, struct tp_error *err)
{
	const struct config *c = d->config;
	char why[TORPOR_ERROR_SIZE];
	struct torpor_options options = {
		.size = sizeof(options), .state_dir = c->state_dir, .runtime_dir = c->runtime_dir,
		.pools = c->pools, .npools = c->npools,
	};

	if (!sockets_prepare(c, err))
		return false;
	d->torpor = torpor_new(d->loop, &options, why);
	if (!d->torpor)
		return tp_fail(err, TP_ESTATE, "%s", why);
	d->sockets = sockets_open(d->loop, d->torpor, c, err);
	return d->sockets;
}

static int run(struct daemon *d)
{
	struct tp_error err = TP_ERROR_INIT;

	log_setup(d->config->log_level, d->config->log_json);
	raise_file_limit();
	d->loop = ev_loop_new(EVFLAG_AUTO);
	if (!d->loop) {
		fprintf(stderr, "torpord: no event loop: %s\n", strerror(errno));
		return 1;
	}
	catch_signals(d);
	if (start(d, &err)) {
		tp_info("torpord %s is ready, state in %s", torpor_version(), d->config->state_dir);
		systemd_watchdog_start(d->loop);
		systemd_ready();
		ev_run(d->loop, 0);
		tp_info("torpord ends");
	} else {
		fprintf(stderr, "torpord: %s\n", err.text);
		d->status = 1;
	}
	systemd_watchdog_stop(d->loop);
	sockets_close(d->sockets);
	if (d->torpor)
		torpor_free(d->torpor);
	release_signals(d);
	ev_loop_destroy(d->loop);
	return d->status;
}

int main(int argc, char *argv[])
{
	struct daemon d = { .options = json_object() };
	struct tp_error err = TP_ERROR_INIT;
	bool check = false;
	int status = parse_options(argc, argv, d.options, &check);

	if (status < 0) {
		d.config = config_load(d.options, &err);
		if (!d.config) {
			fprintf(stderr, "torpord: %s\n", err.text);
			status = 1;
		} else if (check) {
			status = puts("torpord: the configuration is good") < 0;
		} else {
			status = run(&d);
		}
	}
	config_free(d.config);
	json_decref(d.options);
	return status;
}
