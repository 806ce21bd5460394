/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * torpord_config.h - torpord's settings: command line over configuration file over defaults
 */
#ifndef TORPORD_CONFIG_H
#define TORPORD_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <sys/types.h>

#include "base/tp_error.h"
#include "base/tp_log.h"
#include "base/tp_sock.h"
#include "torpor.h"

#define CONFIG_FILE_MAX (1u << 20)	/* bytes */
#define CONFIG_DEPTH 8
#define CONFIG_POOLS_MAX 64
#define CONFIG_GROUPS_MAX 64

struct config_group {
	gid_t gid;
	enum torpor_role role;
};

struct config {
	json_t *settings;		/* what the strings below point into */
	const char *socket, *state_dir, *runtime_dir;
	struct torpor_pool pools[CONFIG_POOLS_MAX];
	size_t npools;
	bool has_socket_group;
	gid_t socket_group;
	struct config_group groups[CONFIG_GROUPS_MAX];
	size_t ngroups;
	enum tp_level log_level;
	bool log_json;
};

/*
 * options: settings of the command line (borrowed), named as in the file; "config" names the file
 * (absent: the default one, if it is there). NULL: err says what is wrong, naming file and member.
 */
struct config *config_load(const json_t *options, struct tp_error *err);
void config_free(struct config *c);

/* Settings of the command line alone: what is wrong in them is bad usage. */
bool config_check_options(const json_t *options, struct tp_error *err);
/* "NAME=DIR[,quota=SIZE]" to {"NAME": {"path", "quota"?}} in pools. */
bool config_parse_pool(const char *text, json_t *pools, struct tp_error *err);
/* What a peer may do: root and the daemon's own user are admin, others by their groups. */
enum torpor_role config_role(const struct config *c, const struct tp_peer *peer);
/* Members that differ and take effect only at the next start, as text: "" if none. */
void config_differences(const struct config *a, const struct config *b, char *text, size_t size);

#endif
