/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * disk_info.c - What query-vm says of a disk: format, sizes, backing files
 *
 * A chain that is damaged or goes on elsewhere is listed as far as it can be read: this informs, it
 * does not judge.
 */
#include <string.h>

#include "base/tp_json.h"
#include "base/tp_text.h"
#include "disk_node.h"
#include "fingerprint.h"

#define STAT_BLOCK 512		/* unit of st_blocks */

/* A file's name need not be UTF-8, which JSON must. */
static bool append_name(json_t *list, const char *name)
{
	tp_autofree char *text = strdup(name);

	if (text)
		tp_text_clean(text);
	return text && json_array_append_new(list, json_string(text)) == 0;
}

static bool add_backing(json_t *list, struct disk_node *node)
{
	while (node->is_qcow2 && node->qcow2.backing[0] &&
	       json_array_size(list) < FINGERPRINT_CHAIN_MAX) {
		tp_autofree char *file = disk_node_resolve(node->file, node->qcow2.backing);
		struct tp_error ignored = TP_ERROR_INIT;
		char format[QCOW2_FORMAT_MAX + 1];

		if (!file || !append_name(list, file))
			return false;
		strcpy(format, node->qcow2.backing_format);
		disk_node_close(node);
		if (!disk_node_open(file, format, node, &ignored))
			return true;
	}
	return true;
}

static uint64_t allocated(const struct disk_node *node, uint64_t size)
{
	return node->kind == DISK_BLOCK ? size : (uint64_t)node->st.st_blocks * STAT_BLOCK;
}

json_t *disk_info(const char *file, const char *format, struct tp_error *err)
{
	TP_CLEANUP(disk_node_close) struct disk_node node = DISK_NODE_INIT;
	tp_autojson json_t *info = json_object();
	json_t *backing = json_array();
	uint64_t size = 0;
	bool known;

	if (!tp_json_set(info, "backing", backing)) {
		tp_fail_nomem(err);
		return NULL;
	}
	if (!disk_node_open(file, format, &node, err))
		return NULL;
	if (node.kind == DISK_MISSING) {
		tp_fail(err, TP_ESYS, "%s: %s", node.file, node.why);
		return NULL;
	}
	known = node.fd >= 0;
	if (known && !disk_node_size(&node, &size, err))
		return NULL;
	if (!tp_json_set_str(info, "format", node.format) ||
	    !tp_json_set(info, "virtual-size", !known ? json_null() :
			 json_integer((json_int_t)(node.is_qcow2 ? node.qcow2.virtual_size : size))) ||
	    !tp_json_set(info, "allocated", !known ? json_null() :
			 json_integer((json_int_t)allocated(&node, size))) ||
	    !add_backing(backing, &node)) {
		tp_fail_nomem(err);
		return NULL;
	}
	return TP_STEAL(info);
}
