/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * launch_argv.c - QEMU's command line: placeholders, disks, channels, the user's args
 *
 * The user's args hold the machine and come as they stand, but for placeholders and, at a restore,
 * the recorded vmgenid. Disks and secrets stand before them, as devices in args refer to these;
 * what must win stands behind.
 */
#include <string.h>
#include <sys/stat.h>

#include "base/tp_buf.h"
#include "base/tp_json.h"
#include "engine/engine.h"
#include "engine/launch_priv.h"
#include "engine/spec.h"
#include "engine/vm.h"

#define ARG_MAX_BYTES 65536u

/* --- placeholders --- */

static bool placeholder(const struct vm *vm, const char *name, const json_t *fds, struct tp_buf *out)
{
	if (strcmp(name, "name") == 0)
		return tp_buf_adds(out, vm->name);
	if (strcmp(name, "uid") == 0)
		return tp_buf_adds(out, vm->uid);
	if (strcmp(name, "run-dir") == 0)
		return tp_buf_adds(out, vm->run_dir);
	if (strcmp(name, "state-dir") == 0)
		return tp_buf_printf(out, "%s/vms/%s", state_dir_path(vm->t->state), vm->name);
	if (strncmp(name, "fd:", 3) == 0 && json_object_get(fds, name + 3))
		return tp_buf_printf(out, "%d", (int)tp_json_int(fds, name + 3, -1));
	return false;
}

/*
 * Only {word} with a known word is a placeholder; "{{" is "{"; any other brace stands for itself,
 * as QEMU's own options may be JSON.
 */
char *launch_expand(const struct vm *vm, const char *text, const json_t *fds, struct tp_error *err)
{
	tp_autobuf struct tp_buf out = TP_BUF_INIT(ARG_MAX_BYTES);
	char name[80];

	while (*text) {
		size_t n = strcspn(text, "{");

		if (!tp_buf_add(&out, text, n))
			goto limit;
		text += n;
		if (!*text)
			break;
		if (text[1] == '{') {
			if (!tp_buf_add(&out, "{", 1))
				goto limit;
			text += 2;
			continue;
		}
		n = strcspn(text + 1, "}{\"");
		if (text[n + 1] == '}' && n < sizeof(name)) {
			memcpy(name, text + 1, n);
			name[n] = '\0';
			if (placeholder(vm, name, fds, &out)) {
				text += n + 2;
				continue;
			}
			if (strncmp(name, "fd:", 3) == 0) {
				tp_fail_class(err, TP_EARG, "GenericError", "placeholder {%s}: spec.launch.fds "
					      "has no such descriptor", name);
				return NULL;
			}
		}
		if (!tp_buf_add(&out, "{", 1))
			goto limit;
		text++;
	}
	return tp_buf_steal(&out);
limit:
	tp_fail(err, TP_ELIMIT, "argument longer than %u bytes", ARG_MAX_BYTES);
	return NULL;
}

static bool add_expanded(json_t *argv, const struct vm *vm, const char *text, const json_t *fds,
			 struct tp_error *err)
{
	tp_autofree char *s = launch_expand(vm, text, fds, err);

	if (!s)
		return false;
	return json_array_append_new(argv, json_string(s)) == 0 ||
	       tp_fail(err, TP_EARG, "argument is not UTF-8");
}

bool launch_add_list(json_t *argv, const struct vm *vm, const json_t *list, const json_t *fds,
		     struct tp_error *err)
{
	size_t i;
	json_t *item;

	json_array_foreach(list, i, item)
		if (!add_expanded(argv, vm, json_string_value(item), fds, err))
			return false;
	return true;
}

static bool add(json_t *argv, const char *a, const char *b)
{
	return json_array_append_new(argv, json_string(a)) == 0 &&
	       (!b || json_array_append_new(argv, json_string(b)) == 0);
}

json_t *launch_channel(const struct vm *vm, const char *what)
{
	json_t *launched = json_object_get(json_object_get(vm->rest, "launched"), what);
	char path[32];

	snprintf(path, sizeof(path), "launch.%s", what);
	return launched ? json_incref(launched) : spec_get(vm->spec, path);
}

bool launch_is_auto(const struct vm *vm, const char *what)
{
	tp_autojson json_t *value = launch_channel(vm, what);

	return json_is_string(value) && strcmp(json_string_value(value), "auto") == 0;
}

/* --- machine pieces --- */

static bool args_have(const json_t *args, const char *text)
{
	size_t i;
	json_t *item;

	json_array_foreach(args, i, item)
		if (strstr(json_string_value(item), text))
			return true;
	return false;
}

static bool add_chardev(json_t *argv, const char *id, int number)
{
	char text[96];

	snprintf(text, sizeof(text), "socket,id=%s,fd=%d,server=on,wait=off", id, number);
	return add(argv, "-chardev", text);
}

static bool add_channels(const struct vm *vm, json_t *argv, const json_t *args, const json_t *numbers)
{
	bool ok = add_chardev(argv, "torpor-qmp", (int)tp_json_int(numbers, "qmp", -1)) &&
		  add(argv, "-mon", "chardev=torpor-qmp,mode=control");

	if (launch_is_auto(vm, "agent")) {
		const char *bus = args_have(args, "microvm") ? "virtio-serial-device" : "virtio-serial-pci";
		char text[64];

		snprintf(text, sizeof(text), "%s,id=torpor-serial", bus);
		ok = ok && add_chardev(argv, "torpor-agent", (int)tp_json_int(numbers, "agent", -1)) &&
		     add(argv, "-device", text) &&
		     add(argv, "-device", "virtserialport,bus=torpor-serial.0,chardev=torpor-agent,"
					  "id=torpor-agent,name=org.qemu.guest_agent.0");
	}
	if (launch_is_auto(vm, "console"))
		ok = ok && add_chardev(argv, "torpor-console", (int)tp_json_int(numbers, "console", -1)) &&
		     add(argv, "-serial", "chardev:torpor-console");
	return ok;
}

static json_t *blockdev(const char *id, const json_t *disk)
{
	const char *file = tp_json_str(disk, "file");
	json_t *options = json_object_get(disk, "options"), *node;
	struct stat st;
	bool device = stat(file, &st) == 0 && S_ISBLK(st.st_mode);

	node = json_pack("{s:s, s:s, s:b, s:{s:s, s:s}}", "driver", tp_json_str(disk, "format"),
			 "node-name", id, "read-only", tp_json_bool(disk, "read-only", false),
			 "file", "driver", device ? "host_device" : "file", "filename", file);
	if (node && options) {
		tp_autojson json_t *base = node;

		node = tp_json_merge_patch(base, options);
	}
	return node;
}

static bool add_disks(json_t *argv, const json_t *disks)
{
	const char *id;
	json_t *disk;

	json_object_foreach((json_t *)disks, id, disk) {
		tp_autojson json_t *node = blockdev(id, disk);
		tp_autofree char *text = node ? json_dumps(node, JSON_COMPACT) : NULL;

		if (!text || !add(argv, "-blockdev", text))
			return false;
	}
	return true;
}

/* In QEMU's key=value lists a comma of a value is written twice. */
static bool add_value(struct tp_buf *out, const char *value)
{
	for (; *value; value++)
		if (!tp_buf_add(out, value, 1) || (*value == ',' && !tp_buf_add(out, value, 1)))
			return false;
	return true;
}

static bool add_secrets(const struct vm *vm, json_t *argv)
{
	json_t *secrets = tp_json_path(vm->spec, "launch.secrets"), *item;
	const char *id;
	tp_autobuf struct tp_buf text = TP_BUF_INIT(ARG_MAX_BYTES);

	json_object_foreach(secrets, id, item) {
		tp_buf_drop(&text, text.len);
		if (!tp_buf_printf(&text, "secret,id=%s,file=", id) || !add_value(&text, tp_json_str(item, "file")) ||
		    !add(argv, "-object", text.data))
			return false;
	}
	return true;
}

/* The same device in QEMU's JSON form. NULL: it is none. */
static char *with_vmgenid_json(const char *device, const char *guid)
{
	tp_autojson json_t *object = *device == '{' ? tp_json_parse(device, strlen(device), 16, NULL) : NULL;
	const char *driver = tp_json_str(object, "driver");

	if (!driver || strcmp(driver, "vmgenid") != 0 || !tp_json_set_str(object, "guid", guid))
		return NULL;
	return json_dumps(object, JSON_COMPACT);
}

/* "vmgenid,guid=auto,..." with the recorded id in place of whatever stands there. */
static char *with_vmgenid(const char *device, const char *guid)
{
	tp_autobuf struct tp_buf out = TP_BUF_INIT(ARG_MAX_BYTES);

	while (*device) {
		size_t n = strcspn(device, ",");

		if (strncmp(device, "guid=", 5) != 0 &&
		    !(tp_buf_adds(&out, out.len ? "," : "") && tp_buf_add(&out, device, n)))
			return NULL;
		device += n + (device[n] == ',');
	}
	return tp_buf_printf(&out, ",guid=%s", guid) ? tp_buf_steal(&out) : NULL;
}

static bool add_args(const struct vm *vm, json_t *argv, const json_t *args, const json_t *numbers,
		     const char *guid, struct tp_error *err)
{
	size_t i;
	json_t *item;

	json_array_foreach(args, i, item) {
		const char *text = json_string_value(item);
		tp_autofree char *device = NULL;

		if (guid && strncmp(text, "vmgenid", 7) == 0 && (!text[7] || text[7] == ','))
			device = with_vmgenid(text, guid);
		else if (guid && *text == '{')
			device = with_vmgenid_json(text, guid);
		text = device ? device : text;
		if (!add_expanded(argv, vm, text, numbers, err))
			return false;
	}
	return true;
}

json_t *launch_disks(const struct vm *vm)
{
	json_t *declared = tp_json_path(vm->spec, "launch.disks"), *now = json_object_get(vm->rest, "disks");
	json_t *all = json_object(), *disk;
	const char *id;

	json_object_foreach(declared, id, disk) {
		json_t *copy = json_deep_copy(disk), *present = json_object_get(now, id);

		if (copy && present)
			json_object_update(copy, present);
		json_object_set_new(all, id, copy);
	}
	return all;
}

json_t *launch_record(struct vm *vm)
{
	json_t *launch = json_object_get(vm->spec, "launch");
	tp_autojson json_t *agent = spec_get(vm->spec, "launch.agent"), *console = spec_get(vm->spec, "launch.console");

	return json_pack("{s:O, s:O, s:o, s:O, s:O, s:I}", "binary", json_object_get(launch, "binary"), "args",
			 json_object_get(launch, "args"), "disks", launch_disks(vm), "agent", agent, "console",
			 console, "generation", (json_int_t)vm->generation);
}

json_t *launch_argv(struct vm *vm, const struct launch_options *o, const json_t *numbers, struct tp_error *err)
{
	const json_t *src = o->manifest ? json_object_get(o->manifest, "launch")
					: json_object_get(vm->spec, "launch");
	const json_t *args = json_object_get(src, "args");
	const char *machine = o->manifest ? tp_json_str(o->manifest, "machine") : NULL;
	const char *guid = o->manifest ? tp_json_str(o->manifest, "vmgenid") : NULL;
	tp_autojson json_t *argv = json_array();
	tp_autojson json_t *disks = o->manifest ? json_incref(json_object_get(src, "disks")) : launch_disks(vm);

	if (!tp_json_str(src, "binary")) {
		tp_fail_class(err, TP_EARG, "GenericError", "VM %s names no QEMU binary", vm->name);
		return NULL;
	}
	if (!launch_add_list(argv, vm, tp_json_path(vm->spec, "launch.wrapper"), numbers, err) ||
	    !add_expanded(argv, vm, tp_json_str(src, "binary"), numbers, err))
		return NULL;
	/* Disks and secrets come first: devices in args refer to them. */
	if (!args_have(args, "-name") && !add(argv, "-name", vm->name))
		return NULL;
	if (!add_secrets(vm, argv) || !add_disks(argv, disks) ||
	    !add_args(vm, argv, args, numbers, guid, err) || !add_channels(vm, argv, args, numbers))
		return NULL;
	if (!args_have(args, "-display") && !args_have(args, "-nographic") && !args_have(args, "-vnc") &&
	    !args_have(args, "-spice") && !add(argv, "-display", "none"))
		return NULL;
	if ((machine && !add(argv, "-machine", machine)) || !add(argv, "-S", NULL) ||
	    (o->incoming && !add(argv, "-incoming", "defer")))
		return NULL;
	return TP_STEAL(argv);
}
