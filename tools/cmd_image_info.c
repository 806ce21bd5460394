/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cmd_image_info.c - torpor image info: what is in an image, and whose it is
 *
 * From the image's header, index and footer, and the files beside it: the manifest (VM, QEMU, disks),
 * the mark that it was used, the record of its last verification. A damaged image still has these, so
 * they are shown with the damage; what one says against the other is a problem, and named.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_error.h"
#include "base/tp_json.h"
#include "base/tp_size.h"
#include "base/tp_time.h"
#include "cli_out.h"
#include "cmd_image.h"
#include "migration/image_machine.h"
#include "storage/image_format.h"
#include "storage/image_survey.h"
#include "storage/page_set.h"
#include "storage/pool.h"

static const char *const kinds[] = { "stopped", "live", "background-snapshot" };

/*
 * @img: NULL: damage says why
 * @manifest, @consumed, @verified, @moving: NULL: not there
 * @problems: sentences
 */
struct info {
	const char *path;
	struct image *img;
	struct tp_error damage;
	char machine[IMAGE_MACHINE_MAX];
	json_t *manifest, *consumed, *verified, *moving, *problems;
};

/* ---- gathering */

static void take_problem(struct info *i, const struct tp_error *why)
{
	if (why->code != TP_OK)
		json_array_append_new(i->problems, json_string(why->text));
}

static json_t *take_beside(struct info *i, const char *file, size_t max)
{
	struct tp_error why = TP_ERROR_INIT;
	json_t *value = image_beside(i->path, file, max, &why);

	take_problem(i, &why);
	return value;
}

/* NULL: none, or one that would not be used. */
static const json_t *working_set(const struct info *i)
{
	const json_t *set = json_object_get(i->manifest, "working-set"), *ram = tp_json_path(i->manifest, "ram.blocks");

	return json_is_array(ram) && page_set_check(set, ram, NULL) ? set : NULL;
}

static void compare(struct info *i)
{
	const char *machine = tp_json_str(i->manifest, "machine");
	tp_autojson json_t *list = NULL;

	if (!i->img || !i->manifest)
		return;
	list = image_contradictions(i->path, i->img, i->manifest);
	json_array_extend(i->problems, list);
	if (machine && *i->machine && strcmp(machine, i->machine) != 0)
		json_array_append_new(i->problems, json_sprintf("the manifest says machine %.100s, the image "
								"%s",
								machine, i->machine));
}

static void gather(struct info *i, int fd)
{
	struct tp_error why = TP_ERROR_INIT;

	i->problems = json_array();
	i->img = image_open(fd, &i->damage);
	if (i->img)
		image_machine(i->img, i->machine, &i->damage);
	i->manifest = take_beside(i, "manifest.json", MANIFEST_MAX);
	i->consumed = take_beside(i, "consumed.json", IMAGE_MARK_MAX);
	i->moving = take_beside(i, "moving.json", IMAGE_MARK_MAX);
	i->verified = image_verification(i->path, i->img, &why);
	take_problem(i, &why);
	compare(i);
}

static void drop(struct info *i)
{
	image_close(i->img);
	json_decref(i->manifest);
	json_decref(i->consumed);
	json_decref(i->verified);
	json_decref(i->moving);
	json_decref(i->problems);
}

/* In the words of query-images. */
static const char *state(const struct info *i)
{
	if (i->damage.code != TP_OK)
		return i->damage.code == TP_ECORRUPT ? "corrupt" : "unavailable";
	if (i->moving)
		return "partial";
	if (image_found_damaged(i->verified))
		return "corrupt";
	return i->consumed ? "consumed" : "complete";
}

static uint64_t device_bytes(const struct image *img)
{
	uint64_t offset, length;

	return image_range(img, IMAGE_RANGE_DEVICES, 0, &offset, &length) ? length : 0;
}

/* ---- as JSON */

static json_t *blocks_json(const struct image *img)
{
	json_t *blocks = json_array();

	for (unsigned n = 0; n < image_info(img)->blocks; n++) {
		const struct image_block *b = image_block(img, n);
		struct image_shares s = { 0 };

		image_block_shares(img, n, &s);
		json_array_append_new(blocks, json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "id", b->id, "bytes",
							(json_int_t)b->used_length,
							"pages-data", (json_int_t)s.data,
							"pages-zero", (json_int_t)s.zero,
							"pages-absent", (json_int_t)s.absent,
							"stored-bytes", (json_int_t)s.stored));
	}
	return blocks;
}

static json_t *image_json(const struct info *info)
{
	const struct image_info *i = image_info(info->img);
	char uuid[33], created[TP_TIME_TEXT], footer[17];

	for (size_t n = 0; n < sizeof(i->uuid); n++)
		snprintf(uuid + 2 * n, 3, "%02x", i->uuid[n]);
	snprintf(footer, sizeof(footer), "%016" PRIx64, i->footer_checksum);
	return json_pack("{s:{s:i, s:i}, s:s, s:s, s:s, s:s, s:s*, s:s, s:I, s:I, s:I, s:I,"
			 " s:i, s:I, s:I, s:I, s:I, s:I, s:o}",
			 "format", "major", i->major, "minor", i->minor, "layout", "stream", "uuid", uuid,
			 "created", tp_time_format(i->created_us, created), "footer", footer,
			 "machine", *info->machine ? info->machine : NULL, "stream-kind", kinds[i->stream_kind],
			 "bytes", (json_int_t)i->file_bytes, "raw-bytes", (json_int_t)i->raw_bytes,
			 "frames", (json_int_t)i->frames, "frame-target", (json_int_t)i->frame_target,
			 "page-size", 1 << i->page_bits, "pages", (json_int_t)i->pages,
			 "pages-data", (json_int_t)i->pages_data,
			 "pages-zero", (json_int_t)i->pages_zero,
			 "index-bytes", (json_int_t)i->index_bytes,
			 "device-bytes", (json_int_t)device_bytes(info->img), "blocks", blocks_json(info->img));
}

static json_t *or_null(json_t *value)
{
	return value ? json_incref(value) : json_null();
}

/* As query-images has it. */
static json_t *folder_of(const char *file)
{
	const char *slash = strrchr(file, '/');

	return slash ? json_stringn(file, slash == file ? 1 : (size_t)(slash - file)) : json_string(".");
}

static uint64_t set_bytes(const json_t *set)
{
	return page_set_pages(set) * (uint64_t)tp_json_int(set, "page-size", 0);
}

static json_t *working_set_json(const struct info *i)
{
	const json_t *set = working_set(i);

	return set ? json_pack("{s:I, s:I, s:I}", "pages", (json_int_t)page_set_pages(set), "ranges",
			       (json_int_t)page_set_ranges(set), "bytes", (json_int_t)set_bytes(set)) : json_null();
}

static enum cli_status info_json(const struct info *i)
{
	tp_autojson json_t *o = i->img ? image_json(i) : json_object();

	tp_json_set_str(o, "file", i->path);
	tp_json_set(o, "path", folder_of(i->path));
	tp_json_set_str(o, "state", state(i));
	if (i->damage.code != TP_OK)
		tp_json_set(o, "damage", cli_error_object(&i->damage));
	tp_json_set(o, "problems", json_incref(i->problems));
	tp_json_set(o, "manifest", or_null(i->manifest));
	tp_json_set(o, "working-set", working_set_json(i));
	tp_json_set(o, "consumed", or_null(i->consumed));
	tp_json_set(o, "verified", or_null(i->verified));
	tp_json_set(o, "moving", or_null(i->moving));
	return cli_print_json(o);
}

/* ---- as text */

static void say_disks(const json_t *manifest)
{
	const char *id;
	json_t *disk;

	json_object_foreach(tp_json_path(manifest, "launch.disks"), id, disk) {
		const char *file = tp_json_str(disk, "file"), *format = tp_json_str(disk, "format");

		cli_say("disk      %s %s%s%s%s", id, file ? file : "-", format ? ", " : "",
			format ? format : "",
			tp_json_bool(disk, "read-only", false) ? ", read-only" : "");
	}
}

static void say_qemu(const json_t *manifest)
{
	const json_t *version = tp_json_path(manifest, "qemu.version");
	const char *package = json_string_value(tp_json_path(manifest, "qemu.package"));

	if (version)
		cli_say("qemu      %d.%d.%d%s%s%s", (int)tp_json_int(version, "major", 0),
			(int)tp_json_int(version, "minor", 0), (int)tp_json_int(version, "micro", 0),
			package && *package ? " (" : "", package ? package : "",
			package && *package ? ")" : "");
}

static void say_member(const char *label, const json_t *object, const char *path)
{
	const char *text = json_string_value(tp_json_path(object, path));

	if (text && *text)
		cli_say("%-9s %s", label, text);
}

static void say_working_set(const struct info *i)
{
	const json_t *set = working_set(i);
	char size[TP_SIZE_TEXT];

	if (set)
		cli_say("working   set of %" PRIu64 " pages in %zu ranges, %s", page_set_pages(set),
			page_set_ranges(set), tp_size_format(set_bytes(set), size));
}

static void say_manifest(const struct info *i)
{
	const char *vm = tp_json_str(i->manifest, "vm"), *uid = tp_json_str(i->manifest, "uid");
	const char *created = tp_json_str(i->manifest, "created");
	char ago[CLI_SPAN_TEXT];

	if (!i->manifest)
		return;
	say_member("image", i->manifest, "image");
	cli_say("vm        %s (uid %s)", vm ? vm : "-", uid ? uid : "-");
	cli_say("saved     %s, %s ago", created ? created : "-", cli_since(created, ago));
	say_qemu(i->manifest);
	say_member("cpu", i->manifest, "cpu.model");
	say_member("guest", i->manifest, "run-state");
	say_disks(i->manifest);
	say_working_set(i);
}

/* A record that came along with a copy, or is older than the damage, does not vouch for what is here. */
static void say_verified(const struct info *i)
{
	const char *at = tp_json_str(i->verified, "at");
	char ago[CLI_SPAN_TEXT];

	if (!at)
		cli_say("verified  never");
	else if (image_found_damaged(i->verified))
		cli_say("verified  %lld damaged places found, %s, %s ago",
			(long long)tp_json_int(i->verified, "damaged", 1),
			at, cli_since(at, ago));
	else
		cli_say("verified  good, %s, %s ago%s", at, cli_since(at, ago),
			i->damage.code == TP_ECORRUPT ? "; damaged since" : "");
}

static void say_marks(const struct info *i)
{
	const char *used = tp_json_str(i->consumed, "at"), *from = tp_json_str(i->moving, "from");

	if (!i->manifest)
		return;
	if (i->consumed)
		cli_say("consumed  a guest %s from it, %s", tp_json_bool(i->consumed, "ran", true) ? "ran" :
			"was about to run", used ? used : "time not recorded");
	else
		cli_say("consumed  no");
	say_verified(i);
	if (i->moving)
		cli_say("moving    a copy that is not finished, from pool %s", from ? from : "-");
}

static const char *part(double of, double all, char buf[16])
{
	snprintf(buf, 16, "%.1f %%", all > 0 ? 100 * of / all : 0);
	return buf;
}

static void say_pages(const struct image_info *i)
{
	uint64_t absent = i->pages - i->pages_data - i->pages_zero;
	char size[TP_SIZE_TEXT], page[TP_SIZE_TEXT], text[64] = "";

	if (absent)
		snprintf(text, sizeof(text), ", %" PRIu64 " not sent", absent);
	cli_say("memory    %s in pages of %s: %" PRIu64 " with data, %" PRIu64 " zero%s",
		tp_size_format(i->pages << i->page_bits, size), tp_size_format(1ull << i->page_bits, page),
		i->pages_data, i->pages_zero, text);
}

static void block_row(struct cli_table *t, const struct image *img, unsigned n)
{
	const struct image_block *b = image_block(img, n);
	unsigned bits = image_info(img)->page_bits;
	char a[TP_SIZE_TEXT], ratio[16];
	struct image_shares s = { 0 };

	image_block_shares(img, n, &s);
	cli_table_row(t);
	cli_table_set(t, 0, b->id);
	cli_table_set(t, 1, tp_size_format(b->used_length, a));
	cli_table_set(t, 2, tp_size_format(s.data << bits, a));
	cli_table_set(t, 3, tp_size_format(s.zero << bits, a));
	cli_table_set(t, 4, tp_size_format(s.absent << bits, a));
	cli_table_set(t, 5, tp_size_format((uint64_t)s.stored, a));
	cli_table_set(t, 6, s.data ? part(s.stored, (double)(s.data << bits), ratio) : NULL);
}

static void say_blocks(const struct image *img)
{
	static const char *const heads[] = { "BLOCK", "SIZE", "DATA", "ZERO", "NOT SENT", "STORED",
					     "OF DATA" };
	struct cli_table t;

	cli_table_init(&t, heads, TP_N(heads));
	for (unsigned n = 0; n < image_info(img)->blocks; n++)
		block_row(&t, img, n);
	puts("");
	cli_table_print(&t);
	cli_table_free(&t);
}

static void say_machine(const struct info *i)
{
	const char *named = tp_json_str(i->manifest, "machine");

	if (*i->machine)
		cli_say("machine   %s", i->machine);
	else if (i->damage.code == TP_OK)
		cli_say("machine   not recorded");
	else
		cli_say("machine   %s", named ? named : "cannot be read");
}

static void say_image(const struct info *info)
{
	const struct image_info *i = image_info(info->img);
	char created[TP_TIME_TEXT], a[TP_SIZE_TEXT], b[TP_SIZE_TEXT], c[16];

	if (!info->manifest)
		cli_say("created   %s", tp_time_format(i->created_us, created));
	say_machine(info);
	cli_say("stream    %s save, %s with %s of device state", kinds[i->stream_kind],
		tp_size_format(i->raw_bytes, a), tp_size_format(device_bytes(info->img), b));
	cli_say("size      %s, %s of the stream, %s of the memory", tp_size_format(i->file_bytes, a),
		part((double)i->file_bytes, (double)i->raw_bytes, b),
		part((double)i->file_bytes, (double)(i->pages << i->page_bits), c));
	cli_say("frames    %" PRIu64 " of about %s, index %s", i->frames, tp_size_format(i->frame_target, a),
		tp_size_format(i->index_bytes, b));
	say_pages(i);
}

static void info_text(const struct info *i)
{
	json_t *problem;
	size_t n;

	cli_say("file      %s", i->path);
	if (i->img)
		cli_say("format    torpor memory image %u.%u, %s", image_info(i->img)->major,
			image_info(i->img)->minor, state(i));
	else
		cli_say("format    %s", state(i));
	say_manifest(i);
	if (i->img)
		say_image(i);
	say_marks(i);
	json_array_foreach(i->problems, n, problem)
		cli_say("problem   %s", json_string_value(problem));
	if (i->img)
		say_blocks(i->img);
}

/* ---- all of it */

static int show(const struct cli *cli, const struct info *i)
{
	int status;

	/* A file of which nothing is known is no image. */
	if (!i->img && !i->manifest)
		return image_failed(cli, i->path, &i->damage);
	if (i->damage.code != TP_OK)
		cli_note("%s: %s", i->path, i->damage.text);
	if (cli->format == CLI_F_JSON)
		status = (int)info_json(i);
	else {
		info_text(i);
		status = (int)cli_flush();
	}
	return i->damage.code != TP_OK || image_found_damaged(i->verified) || json_array_size(i->problems) > 0 ?
	       CLI_FAILED : status;
}

int cmd_image_info(struct cli *cli)
{
	tp_autofree char *path = NULL;
	struct info i = { .damage = TP_ERROR_INIT };
	int status = image_path(cli, cli->operands[0], &path);
	tp_autoclose int fd = -1;

	if (status != CLI_DONE)
		return status;
	fd = image_open_path(path, &i.damage);
	if (fd < 0)
		return image_failed(cli, path, &i.damage);
	i.path = path;
	gather(&i, fd);
	status = show(cli, &i);
	drop(&i);
	return status;
}
