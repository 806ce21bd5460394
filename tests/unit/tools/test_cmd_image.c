/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* test_cmd_image.c - `torpor image info|verify|cat|map FILE`: output, sentences, exit statuses */
#include "unit/storage/image_test.h"

#include <fcntl.h>
#include <jansson.h>

#include "base/tp_json.h"

#include "cli_verb.h"

static char path[] = "/tmp/torpor-cmd-image-XXXXXX";

struct captured {
	int status;
	char out[65536], err[8192];
	size_t n;
};

static size_t slurp(FILE *f, char *buf, size_t max)
{
	size_t n;

	rewind(f);
	n = fread(buf, 1, max - 1, f);
	buf[n] = '\0';
	fclose(f);
	return n;
}

/* As by the command line "torpor image VERB ...". */
static int run_verb(char kind, const char *file, bool json)
{
	static const struct { char kind; const char *verb, *option; } kinds[] = {
		{ 'i', "info", NULL }, { 'v', "verify", NULL }, { 'c', "cat", NULL },
		{ 's', "cat", "--salvage" },
		{ 'm', "map", NULL }, { 'p', "map", "--svg=-" },
	};
	static struct cli cli;
	char *argv[6] = { (char *)"torpor", (char *)"image" };
	int argc = 2, status;

	for (size_t i = 0; i < TP_N(kinds); i++) {
		if (kinds[i].kind != kind)
			continue;
		argv[argc++] = (char *)kinds[i].verb;
		if (kinds[i].option)
			argv[argc++] = (char *)kinds[i].option;
	}
	argv[argc++] = (char *)file;
	if (json)
		argv[argc++] = (char *)"--json";
	status = cli_parse(&cli, argc, argv);
	if (status != -1)
		return status;
	status = cli.verb->run(&cli);
	cli_free(&cli);
	return status;
}

/* Runs a command with stdout and stderr in files. */
static void run(struct captured *c, char kind, const char *file, bool json)
{
	FILE *out = tmpfile(), *err = tmpfile();
	int saved[2] = { dup(1), dup(2) };

	fflush(stdout);
	fflush(stderr);
	dup2(fileno(out), 1);
	dup2(fileno(err), 2);
	c->status = run_verb(kind, file, json);
	fflush(stdout);
	fflush(stderr);
	dup2(saved[0], 1);
	dup2(saved[1], 2);
	close(saved[0]);
	close(saved[1]);
	c->n = slurp(out, c->out, sizeof(c->out));
	slurp(err, c->err, sizeof(c->err));
}

static void make_file(struct small_image *t, int *fd)
{
	size_t n;
	uint8_t *p;

	small_image_make(t);
	p = file_bytes(t->fd, &n);
	strcpy(path + strlen(path) - 6, "XXXXXX");
	*fd = mkostemp(path, O_CLOEXEC);
	assert_true(*fd >= 0);
	file_replace(*fd, p, n);
	free(p);
}

static void drop_file(struct small_image *t, int fd)
{
	close(fd);
	unlink(path);
	small_image_free(t);
}

static void flip(int fd, off_t at)
{
	uint8_t byte;

	assert_int_equal(pread(fd, &byte, 1, at), 1);
	byte ^= 0x55;
	assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

static void good_image(void **state)
{
	struct small_image t;
	static struct captured c;
	json_t *o;
	int fd;

	(void)state;
	make_file(&t, &fd);
	run(&c, 'i', path, true);
	assert_int_equal(c.status, 0);
	o = json_loads(c.out, 0, NULL);
	assert_non_null(o);
	assert_string_equal(json_string_value(json_object_get(o, "machine")), "pc");
	assert_string_equal(json_string_value(json_object_get(o, "state")), "complete");
	assert_string_equal(json_string_value(json_object_get(o, "path")), "/tmp");
	assert_int_equal(json_integer_value(json_object_get(o, "raw-bytes")), t.raw.len);
	assert_int_equal(json_integer_value(json_object_get(o, "pages-zero")), 3);
	assert_int_equal(json_integer_value(json_object_get(o, "device-bytes")), 25);
	assert_int_equal(json_array_size(json_object_get(o, "blocks")), 2);
	json_decref(o);
	run(&c, 'i', path, false);
	assert_int_equal(c.status, 0);
	assert_non_null(strstr(c.out, "machine   pc\n"));
	assert_non_null(strstr(c.out, "4 with data, 3 zero, 1 not sent"));
	run(&c, 'v', path, true);
	assert_int_equal(c.status, 0);
	o = json_loads(c.out, 0, NULL);
	assert_true(json_is_true(json_object_get(o, "verified")));
	json_decref(o);
	run(&c, 'v', path, false);
	assert_int_equal(c.status, 0);
	assert_non_null(strstr(c.out, "good: 3 frames"));
	run(&c, 'm', path, false);
	assert_int_equal(c.status, 0);
	assert_non_null(strstr(c.out, "0 -..-- \n"));
	run(&c, 'p', path, false);
	assert_int_equal(c.status, 0);
	assert_memory_equal(c.out, "<svg ", 5);
	for (const char *kind = "cs"; *kind; kind++) {
		run(&c, *kind, path, false);
		assert_int_equal(c.status, 0);
		assert_int_equal(c.n, t.raw.len);
		assert_memory_equal(c.out, t.raw.data, c.n);
		assert_string_equal(c.err, "");
	}
	drop_file(&t, fd);
}

/* Beside the image in a folder of its own. */
static void put_manifest(const char *folder, json_t *m_owned)
{
	char file[64];

	snprintf(file, sizeof(file), "%s/manifest.json", folder);
	assert_int_equal(json_dump_file(m_owned, file, JSON_COMPACT), 0);
	json_decref(m_owned);
}

static json_t *manifest_with(json_int_t pages)
{
	return json_pack("{s:{s:[{s:s, s:i}, {s:s, s:i}]}, s:{s:i, s:[s], s:[[i, i, I], [i, i, i]]}}", "ram", "blocks",
			 "id", "ram", "bytes", 6 * 4096, "id", "rom", "bytes", 2 * 4096, "working-set", "page-size",
			 4096, "blocks", "ram", "ranges", 0, 1, pages, 0, 0, 1);
}

static void working_set_is_told(void **state)
{
	char folder[] = "/tmp/torpor-cmd-info-XXXXXX", image[64], manifest[64];
	tp_autojson json_t *o = NULL;
	static struct captured c;
	struct small_image t;
	int fd;

	(void)state;
	make_file(&t, &fd);
	assert_non_null(mkdtemp(folder));
	snprintf(image, sizeof(image), "%s/memory.zst", folder);
	snprintf(manifest, sizeof(manifest), "%s/manifest.json", folder);
	assert_int_equal(link(path, image), 0);
	put_manifest(folder, manifest_with(4));
	run(&c, 'i', image, false);
	assert_int_equal(c.status, 0);
	assert_non_null(strstr(c.out, "working   set of 5 pages in 2 ranges, 20 KiB\n"));
	run(&c, 'i', image, true);
	o = json_loads(c.out, 0, NULL);
	assert_int_equal(tp_json_int(tp_json_path(o, "working-set"), "pages", -1), 5);
	assert_int_equal(tp_json_int(tp_json_path(o, "working-set"), "ranges", -1), 2);
	assert_int_equal(tp_json_int(tp_json_path(o, "working-set"), "bytes", -1), 20480);
	/* One that does not fit is none, and no fault of the image. */
	put_manifest(folder, manifest_with(6));
	run(&c, 'i', image, false);
	assert_int_equal(c.status, 0);
	assert_null(strstr(c.out, "working"));
	unlink(manifest);
	unlink(image);
	assert_int_equal(rmdir(folder), 0);
	drop_file(&t, fd);
}

static void damaged_frame(void **state)
{
	uint64_t first, second, index_at;
	struct small_image t;
	static struct captured c;
	struct image *img;
	json_t *o;
	int fd;

	(void)state;
	make_file(&t, &fd);
	img = image_open(fd, NULL);
	first = image_frame_stored(img, 0);
	second = image_frame_stored(img, 1);
	index_at = image_info(img)->index_offset;
	image_close(img);
	flip(fd, (off_t)(4096 + first + second - 2));
	run(&c, 'v', path, true);
	assert_int_equal(c.status, 1);
	assert_non_null(strstr(c.err, "frame 1 at offset"));
	o = json_loads(c.out, 0, NULL);
	assert_string_equal(json_string_value(json_object_get(o, "class")), "Corrupt");
	assert_int_equal(json_integer_value(tp_json_path(o, "data.damaged")), 1);
	json_decref(o);
	run(&c, 'v', path, false);
	assert_int_equal(c.status, 1);
	assert_non_null(strstr(c.out, "ram    3-4"));
	assert_non_null(strstr(c.out, "rom    1-1"));
	assert_non_null(strstr(c.out, "torpor image cat --salvage /tmp/torpor-cmd-image-"));
	run(&c, 'c', path, false);
	assert_int_equal(c.status, 1);
	assert_int_equal(c.n, t.frame_end[0]);
	run(&c, 's', path, false);
	assert_int_equal(c.status, 6);
	assert_int_equal(c.n, t.raw.len - (t.frame_end[1] - t.frame_end[0]));
	assert_memory_equal(c.out, t.raw.data, t.frame_end[0]);
	assert_non_null(strstr(c.err, "left out"));
	assert_non_null(strstr(c.err, "1 of 3 frames left out"));
	assert_non_null(strstr(c.err, "ram: lost 8 KiB, 2 of 6 pages, from page 3 to 4"));
	assert_non_null(strstr(c.err, "rom: lost 4 KiB, 1 of 2 pages, from page 1 to 1"));

	/* The picture is the index's; what tells of damage is told all the same. */
	run(&c, 'm', path, false);
	assert_int_equal(c.status, 0);
	flip(fd, (off_t)(4096 + first - 2));
	run(&c, 'm', path, false);
	assert_int_equal(c.status, 1);
	assert_non_null(strstr(c.out, "0 -..-- \n"));
	assert_non_null(strstr(c.err, "frame 0 at offset"));
	run(&c, 'i', path, false);
	assert_int_equal(c.status, 1);
	assert_non_null(strstr(c.out, "corrupt\n"));
	assert_non_null(strstr(c.out, "machine   cannot be read\n"));
	flip(fd, (off_t)(4096 + first - 2));

	/* With a damaged header the frames are found by themselves. */
	flip(fd, 504);
	run(&c, 'c', path, false);
	assert_int_equal(c.status, 1);
	assert_int_equal(c.n, 0);
	run(&c, 's', path, false);
	assert_int_equal(c.status, 6);
	assert_int_equal(c.n, t.raw.len - (t.frame_end[1] - t.frame_end[0]));
	assert_non_null(strstr(c.err, "2 frames written, 1 damaged"));

	/* With a damaged head of the index, too: its body is no part of the stream. */
	flip(fd, (off_t)index_at);
	flip(fd, (off_t)index_at + 8);
	run(&c, 's', path, false);
	assert_int_equal(c.status, 6);
	assert_int_equal(c.n, t.raw.len - (t.frame_end[1] - t.frame_end[0]));
	assert_non_null(strstr(c.err, "2 frames written, 2 damaged"));
	drop_file(&t, fd);
}

static void nothing_to_read(void **state)
{
	static struct captured c;
	struct small_image t;
	int fd;

	(void)state;
	make_file(&t, &fd);
	file_replace(fd, "hello", 5);
	for (const char *kind = "ivcsmp"; *kind; kind++) {
		run(&c, *kind, path, false);
		assert_int_equal(c.status, 1);
		assert_int_equal(c.n, 0);
		assert_non_null(strstr(c.err, path));
		run(&c, *kind, "/nonexistent/file", false);
		assert_int_equal(c.status, 1);
		assert_non_null(strstr(c.err, "/nonexistent/file: IOError: cannot be opened"));
	}
	drop_file(&t, fd);
}

static void no_terminal(void **state)
{
	int pty = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC), slave, saved, status;

	(void)state;
	if (pty < 0 || grantpt(pty) || unlockpt(pty))
		skip();
	slave = open(ptsname(pty), O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		skip();
	fflush(stdout);
	saved = dup(1);
	dup2(slave, 1);
	status = run_verb('c', "tests/data/images/v1.0.img", false);
	dup2(saved, 1);
	assert_int_equal(status, 2);
	close(saved);
	close(slave);
	close(pty);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_image),
		cmocka_unit_test(working_set_is_told),
		cmocka_unit_test(damaged_frame),
		cmocka_unit_test(nothing_to_read),
		cmocka_unit_test(no_terminal),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
