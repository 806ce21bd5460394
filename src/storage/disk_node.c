/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* disk_node.c - One file of a disk: opened for reading, its format's facts at hand */
#include "disk_node.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/tp_cleanup.h"

/* QEMU's rule: a colon before any slash. */
static bool has_protocol(const char *name)
{
	return name[strcspn(name, ":/")] == ':';
}

static const char *without_file_protocol(const char *name)
{
	return strncmp(name, "file:", 5) == 0 ? name + 5 : name;
}

char *disk_node_resolve(const char *file, const char *name)
{
	const char *slash = strrchr(file, '/');
	char *path;

	name = without_file_protocol(name);
	if (name[0] == '/' || has_protocol(name) || !slash)
		return strdup(name);
	if (asprintf(&path, "%.*s%s", (int)(slash - file + 1), file, name) < 0)
		return NULL;
	return path;
}

static bool opaque(struct disk_node *node, const char *why)
{
	node->kind = DISK_OPAQUE;
	snprintf(node->why, sizeof(node->why), "%s", why);
	return true;
}

/* Looks before it opens: opening a FIFO or a tape has effects. */
static bool open_file(struct disk_node *node, struct tp_error *err)
{
	if (stat(node->file, &node->st) != 0) {
		if (errno != ENOENT && errno != ENOTDIR)
			return tp_fail_sys(err, errno, "%s", node->file);
		node->kind = DISK_MISSING;
		snprintf(node->why, sizeof(node->why), "%s", strerror(errno));
		return true;
	}
	if (!S_ISREG(node->st.st_mode) && !S_ISBLK(node->st.st_mode))
		return opaque(node, "neither a file nor a block device");
	node->fd = open(node->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (node->fd < 0 || fstat(node->fd, &node->st) != 0)
		return tp_fail_sys(err, errno, "open %s", node->file);
	if (!S_ISREG(node->st.st_mode) && !S_ISBLK(node->st.st_mode)) {
		tp_close(&node->fd);
		return opaque(node, "neither a file nor a block device");
	}
	node->kind = S_ISBLK(node->st.st_mode) ? DISK_BLOCK : DISK_FILE;
	return true;
}

bool disk_node_open(const char *file, const char *format, struct disk_node *node,
		    struct tp_error *err)
{
	if (!format || !format[0])
		format = NULL;
	node->fd = -1;
	node->is_qcow2 = false;
	node->why[0] = 0;
	node->file = strdup(without_file_protocol(file));
	if (!node->file)
		return tp_fail_nomem(err);
	snprintf(node->format, sizeof(node->format), "%s", format ? format : "raw");
	if (has_protocol(node->file))
		return opaque(node, "not a local file");
	if (!open_file(node, err))
		return false;
	if (node->fd < 0)
		return true;
	if (!format && qcow2_probe(node->fd))
		snprintf(node->format, sizeof(node->format), "qcow2");
	if (strcmp(node->format, "qcow2") != 0)
		return true;
	node->is_qcow2 = true;
	return qcow2_read(node->fd, &node->qcow2, err) || tp_prefix(err, "%s", node->file);
}

void disk_node_close(struct disk_node *node)
{
	tp_close(&node->fd);
	free(node->file);
	node->file = NULL;
}

bool disk_node_size(const struct disk_node *node, uint64_t *size, struct tp_error *err)
{
	if (node->kind != DISK_BLOCK) {
		*size = (uint64_t)node->st.st_size;
		return true;
	}
	if (ioctl(node->fd, BLKGETSIZE64, size) != 0)
		return tp_fail_sys(err, errno, "size of %s", node->file);
	return true;
}
