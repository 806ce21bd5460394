/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cmd_prune.c - prune: delete memory images that nobody needs
 *
 * Made of query-images, query-vms and image-delete, so that it can do no more than its user could by hand:
 * what a hibernated VM would go on from, and what an operation works with, torpord refuses to delete,
 * whatever changed since it was asked. What is garbage:
 *
 *   partial      never finished, and no operation is at it; also what a move has copied of an image
 *   kept         a guest has run from it: past the VM's storage.retain, or with --kept
 *   corrupt      with --corrupt
 *   of no VM     with --orphans, whatever its state: it may be all that is left of that VM
 *
 * Of kept ones and orphans --age spares the younger. A complete image of a VM that is defined never is
 * garbage, nor is any of a VM that is lost or at work.
 */
#include <stdlib.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "base/tp_size.h"
#include "base/tp_time.h"
#include "cli_each.h"
#include "cli_out.h"
#include "cli_session.h"

/*
 * @vms: by name, those that are defined
 * @picked: {"id", "vm", "pool", "bytes", "why", "error"?} of each that is to go
 * @where: one of @picked, in the pool that is gone through
 * @age: seconds; negative: none given
 * @status: of the first that could not be deleted
 */
struct prune {
	struct cli *cli;
	json_t *vms, *images, *picked;
	const json_t *where;
	double age;
	uint64_t now, freed;
	size_t deleted, failed;
	enum cli_status status;
};

/* --- what may go --- */

static bool older(const struct prune *p, const json_t *image, double seconds)
{
	const char *created = tp_json_str(image, "created");
	uint64_t at;

	return created && tp_time_parse(created, &at) && at < p->now && (double)(p->now - at) / 1e6 > seconds;
}

static bool text_is(const json_t *object, const char *member, const char *text)
{
	const char *has = tp_json_str(object, member);

	return has && strcmp(has, text) == 0;
}

/* What a move has copied of the image, which is in another pool. */
static bool is_copy_of(const json_t *own, const json_t *image)
{
	const char *in = tp_json_str(own, "pool"), *pool = tp_json_str(image, "pool");

	return text_is(image, "state", "partial") && in && pool && strcmp(in, pool) != 0;
}

/* A VM whose record is lost may go on from an image that it does not name. */
static bool hands_off(const json_t *vm, const json_t *image)
{
	const json_t *own = json_object_get(vm, "image");
	const char *of = tp_json_str(own, "id");

	return json_is_object(json_object_get(vm, "operation")) || text_is(vm, "state", "lost") ||
	       (of && text_is(image, "id", of) && !is_copy_of(own, image));
}

/* newer: kept images of this VM that are newer. */
static const char *kept_too_long(const struct prune *p, const json_t *image, const json_t *vm, size_t newer)
{
	const json_t *retain = tp_json_path(vm, "spec.storage.retain");
	int64_t count = tp_json_int(retain, "count", -1);
	double age = tp_json_num(retain, "age", -1);

	if (p->age >= 0 && !older(p, image, p->age))
		return NULL;
	if (cli_flag(p->cli, "kept"))
		return p->age >= 0 ? "kept, older than --age" : "kept after its restore";
	if (count >= 0 && newer >= (uint64_t)count)
		return "kept, more than the VM retains";
	return age >= 0 && older(p, image, age) ? "kept, longer than the VM retains" : NULL;
}

/* NULL: it stays. */
static const char *why(const struct prune *p, const json_t *image, size_t newer)
{
	const json_t *vm = json_object_get(p->vms, tp_json_str(image, "vm"));

	if (text_is(image, "state", "unavailable"))
		return NULL;
	if (!vm)
		return cli_flag(p->cli, "orphans") && (p->age < 0 || older(p, image, p->age)) ?
		       "its VM is not defined" : NULL;
	if (hands_off(vm, image))
		return NULL;
	if (text_is(image, "state", "partial"))
		return "never finished";
	if (text_is(image, "state", "corrupt"))
		return cli_flag(p->cli, "corrupt") ? "damaged" : NULL;
	return text_is(image, "state", "consumed") ? kept_too_long(p, image, vm, newer) : NULL;
}

/* Kept images of the same VM that are newer; ids tell between those of one second. */
static size_t newer_kept(const struct prune *p, const json_t *image)
{
	const char *vm = tp_json_str(image, "vm"), *id = tp_json_str(image, "id");
	json_t *other;
	size_t i, n = 0;

	json_array_foreach(p->images, i, other) {
		const char *its = tp_json_str(other, "id");

		n += its && text_is(other, "vm", vm) && text_is(other, "state", "consumed") && strcmp(its, id) > 0;
	}
	return n;
}

static bool is_named(const struct cli *cli, const char *vm)
{
	for (size_t i = 0; i < cli->noperands; i++)
		if (strcmp(cli->operands[i], vm) == 0)
			return true;
	return cli->noperands == 0;
}

static void pick(struct prune *p)
{
	json_t *image;
	size_t i;

	json_array_foreach(p->images, i, image) {
		const char *id = tp_json_str(image, "id"), *vm = tp_json_str(image, "vm"), *reason;

		if (!id || !vm || !is_named(p->cli, vm))
			continue;
		reason = why(p, image, newer_kept(p, image));
		if (reason)
			json_array_append_new(p->picked, json_pack("{s:s, s:s, s:O*, s:I, s:s}", "id", id, "vm", vm, "pool",
					      json_object_get(image, "pool"), "bytes",
					      (json_int_t)cli_bytes(tp_json_num(image, "bytes", 0)), "why", reason));
	}
}

/* --- asking --- */

static int ask(struct prune *p)
{
	tp_autojson json_t *list = NULL;
	json_t *fields = json_pack("{s:[s, s, s, s, s]}", "fields", "name", "state", "image", "operation", "spec");
	int status = cli_ask_list(p->cli, "query-vms", fields, "name", &list);
	json_t *vm;
	size_t i;

	if (status != CLI_DONE)
		return status;
	p->vms = json_object();
	json_array_foreach(list, i, vm)
		if (tp_json_str(vm, "name"))
			tp_json_set(p->vms, tp_json_str(vm, "name"), json_incref(vm));
	return cli_ask_list(p->cli, p->cli->verb->command, json_object(), "id", &p->images);
}

static bool has_image(const struct prune *p, const char *vm)
{
	json_t *image;
	size_t i;

	json_array_foreach(p->images, i, image)
		if (text_is(image, "vm", vm))
			return true;
	return false;
}

/* Names that are neither a VM's nor in any image: each is told. */
static int unknown_names(const struct prune *p)
{
	size_t unknown = 0;

	for (size_t i = 0; i < p->cli->noperands; i++) {
		const char *name = p->cli->operands[i];

		if (json_object_get(p->vms, name) || has_image(p, name))
			continue;
		cli_note("no VM is named \"%s\", and no image is of one", name);
		unknown++;
	}
	if (unknown == 0)
		return CLI_DONE;
	return unknown < p->cli->noperands ? CLI_PARTIAL : CLI_FAILED;
}

/* --- deleting --- */

static bool same_pool(const json_t *a, const json_t *b)
{
	const char *x = tp_json_str(a, "pool"), *y = tp_json_str(b, "pool");

	return x && y ? strcmp(x, y) == 0 : x == y;
}

static json_t *picked_of(const struct prune *p, const char *id)
{
	json_t *entry;
	size_t i;

	json_array_foreach(p->picked, i, entry)
		if (text_is(entry, "id", id) && same_pool(entry, p->where))
			return entry;
	return NULL;
}

static void gone(struct prune *p, const char *done, const json_t *entry)
{
	char size[TP_SIZE_TEXT];

	p->deleted++;
	p->freed += (uint64_t)tp_json_int(entry, "bytes", 0);
	if (!p->cli->quiet && p->cli->format != CLI_F_JSON)
		cli_say("%s: %s (%s), %s in pool %s", tp_json_str(entry, "id"), done, tp_json_str(entry, "why"),
			cli_size(json_object_get(entry, "bytes"), size),
			tp_json_str(entry, "pool") ? tp_json_str(entry, "pool") : "-");
}

static void take_answer(struct cli *cli, const char *id, const json_t *answer, void *arg)
{
	json_t *error = json_object_get(answer, "error");
	struct prune *p = arg;
	json_t *entry = picked_of(p, id);
	enum cli_status status;

	(void)cli;
	/* Somebody else has deleted it, or a copy has gone with its image. */
	if (!error || text_is(error, "class", "NotFound")) {
		gone(p, "deleted", entry);
		return;
	}
	tp_json_set(entry, "error", json_incref(error));
	status = cli_error(id, error, false);
	p->status = p->failed++ && p->status != status ? CLI_FAILED : status;
}

/* Those in the pool of p->where. */
static int delete_there(struct prune *p)
{
	tp_autojson json_t *arguments = json_object();
	struct cli_names names = { .n = 0 };
	json_t *entry;
	size_t i;
	int status;

	if (tp_json_str(p->where, "pool"))
		tp_json_set_str(arguments, "pool", tp_json_str(p->where, "pool"));
	names.names = calloc(json_array_size(p->picked) + 1, sizeof(char *));
	if (!names.names)
		abort();
	json_array_foreach(p->picked, i, entry) {
		if (!same_pool(entry, p->where))
			continue;
		names.names[names.n] = strdup(tp_json_str(entry, "id"));
		if (!names.names[names.n++])
			abort();
	}
	status = cli_each(p->cli, "image-delete", arguments, "image", &names, take_answer, p);
	cli_names_free(&names);
	return status;
}

static bool is_first_of_pool(const struct prune *p, size_t at)
{
	const json_t *entry = json_array_get(p->picked, at);

	for (size_t i = 0; i < at; i++)
		if (same_pool(json_array_get(p->picked, i), entry))
			return false;
	return true;
}

/* Pool by pool: an id names one thing in each. */
static int delete_all(struct prune *p)
{
	int status = CLI_DONE;

	for (size_t i = 0; i < json_array_size(p->picked) && status == CLI_DONE; i++) {
		if (!is_first_of_pool(p, i))
			continue;
		p->where = json_array_get(p->picked, i);
		status = delete_there(p);
	}
	return status;
}

/* --- telling --- */

static void say_sum(const struct prune *p, bool dry)
{
	char size[TP_SIZE_TEXT];

	if (p->cli->quiet)
		return;
	if (json_array_size(p->picked) == 0)
		cli_say("nothing is to be deleted");
	else
		cli_say("%s %s: %zu image%s", dry ? "would free" : "freed", tp_size_format(p->freed, size), p->deleted,
			p->deleted == 1 ? "" : "s");
}

static int tell(const struct prune *p, bool dry)
{
	tp_autojson json_t *out = NULL;
	int status;

	if (p->cli->format != CLI_F_JSON) {
		say_sum(p, dry);
		status = cli_flush();
	} else {
		out = json_pack("{s:b, s:I, s:O}", "dry-run", dry, "bytes", (json_int_t)p->freed, "images", p->picked);
		status = cli_print_json(out);
	}
	if (p->failed == 0)
		return status;
	return p->deleted > 0 ? CLI_PARTIAL : p->status;
}

static int prune(struct prune *p)
{
	bool dry = cli_flag(p->cli, "dry-run");
	int status = ask(p), unknown;
	json_t *entry;
	size_t i;

	if (status != CLI_DONE)
		return status;
	unknown = unknown_names(p);
	pick(p);
	if (dry)
		json_array_foreach(p->picked, i, entry)
			gone(p, "would be deleted", entry);
	else if (json_array_size(p->picked) > 0)
		status = delete_all(p);
	if (status == CLI_DONE && unknown != CLI_FAILED)
		status = tell(p, dry);
	return status != CLI_DONE ? status : unknown;
}

int cmd_prune(struct cli *cli)
{
	struct prune p = { .cli = cli, .picked = json_array(), .now = tp_now_us(),
			   .age = tp_json_num(cli->options, "age", -1) };
	int status = prune(&p);

	json_decref(p.vms);
	json_decref(p.images);
	json_decref(p.picked);
	return status;
}
