/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * mover_verify.c - Job verify: all of an image is read, decoded and compared with its index
 *
 * It goes on after a damage, so that one run tells all that is lost.
 */
#include "mover_jobs.h"

#include <stdio.h>

#include "base/tp_json.h"
#include "migration/image_machine.h"
#include "migration/mover_proto.h"
#include "mover_fault.h"
#include "storage/image_damage.h"
#include "storage/image_read.h"

#define DAMAGE_TEXT_MAX (MOVER_MESSAGE_MAX - 8192)	/* bytes of "damage": the rest is for the message */

struct verify {
	struct control *control;
	uint64_t raw_bytes;
};

/* The engine's progress is in bytes; frames are of nearly equal size. */
static bool on_progress(void *arg, uint64_t done, uint64_t total)
{
	const struct verify *v = arg;
	double part = total ? (double)done / (double)total : 0;
	uint64_t bytes = (uint64_t)((double)v->raw_bytes * part);

	control_progress(v->control, &(struct mover_progress){
		.done = bytes, .total = v->raw_bytes,
	});
	fault_bytes(bytes);
	return true;
}

static json_t *summary(const struct image *img, const char *machine)
{
	const struct image_info *info = image_info(img);
	char uuid[33], footer[17];

	for (size_t i = 0; i < sizeof(info->uuid); i++)
		snprintf(uuid + 2 * i, 3, "%02x", info->uuid[i]);
	snprintf(footer, sizeof(footer), "%016llx", (unsigned long long)info->footer_checksum);
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s, s:s*, s:o*}",
			 "frames", (json_int_t)info->frames, "pages", (json_int_t)info->pages,
			 "pages-data", (json_int_t)info->pages_data,
			 "pages-zero", (json_int_t)info->pages_zero,
			 "bytes", (json_int_t)info->file_bytes,
			 "raw-bytes", (json_int_t)info->raw_bytes, "uuid", uuid, "footer", footer,
			 "machine", *machine ? machine : NULL, "blocks",
			 info->blocks ? job_blocks(image_block(img, 0), info->blocks) : NULL);
}

/* Damages go with the error: those that the message has room for, and how many there are. */
static void fail_damaged(struct control *c, const struct image *img, const struct image_damages *damages,
			 const struct tp_error *err) __attribute__((noreturn));

static void fail_damaged(struct control *c, const struct image *img, const struct image_damages *damages,
			 const struct tp_error *err)
{
	json_t *message = mover_proto_error(err), *value = json_object_get(message, "error");

	tp_json_set(value, "damage", image_damages_json(img, damages, DAMAGE_TEXT_MAX));
	tp_json_set(value, "damaged", json_integer((json_int_t)damages->total));
	control_post(c, message);
	control_exit(c, MOVER_EXIT_ERROR);
}

void job_verify(const struct mover_request *r, struct control *c)
{
	struct tp_error err = TP_ERROR_INIT;
	struct verify v = { .control = c };
	struct image_damages damages;
	struct image *img;
	char machine[IMAGE_MACHINE_MAX] = "";
	unsigned threads;
	int fd;

	if (!mover_request_file(r, "image", false, &fd, &err) || !job_threads(r, &threads, &err))
		job_fail(c, &err);
	img = image_open(fd, &err);
	if (!img)
		job_fail(c, &err);
	v.raw_bytes = image_info(img)->raw_bytes;
	if (image_verify(img, threads, on_progress, &v, &damages, &err))
		job_done(c, summary(img, image_machine(img, machine, NULL) ? machine : ""));
	if (err.code == TP_ECORRUPT)
		fail_damaged(c, img, &damages, &err);
	job_fail(c, &err);
}
