/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * guestd.c - what runs in the test guest: ticks, memory to save, commands on the console
 *
 * Theory of operation
 *   The console is a raw serial line. guestd writes whole lines with one write(2) each, so lines
 *   of its threads never mix: BOOT and READY once, TICK lines from the ticker, BUTTON lines, and
 *   one OK or ERR line for each command line read. The nonce exists only in this process: a TICK
 *   with the same nonce and a higher number after a restore proves that memory came back.
 */
#include "guestd.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/input.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/reboot.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define TICK_MS_MAX 60000
#define INPUT_DEVICES_MAX 16

_Atomic uint64_t nonce;
static int console;
static atomic_bool ticks_on = true;
static atomic_int tick_ms = 100;
static atomic_bool deaf;

void say(const char *format, ...)
{
	char line[LINE_BYTES * 2];
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(line, sizeof(line) - 1, format, args);
	va_end(args);
	if (len < 0)
		return;
	if ((size_t)len > sizeof(line) - 2)
		len = sizeof(line) - 2;
	line[len++] = '\n';
	if (write(console, line, (size_t)len) < 0)
		return; /* nobody could be told */
}

void nap_ns(int64_t ns)
{
	struct timespec ts = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, &ts) == EINTR)
		;
}

double seconds(int clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static bool write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return ok;
}

long parse_number(const char *text, long max)
{
	char *end;
	long value;

	if (!text || *text < '0' || *text > '9')
		return -1;
	errno = 0;
	value = strtol(text, &end, 10);
	return *end || errno || value > max ? -1 : value;
}

void start_thread(void *(*function)(void *), void *arg)
{
	pthread_t thread;
	int err = pthread_create(&thread, NULL, function, arg);

	if (err)
		say("ERR guestd cannot start a thread: %s", strerror(err));
	else
		pthread_detach(thread);
}

static void cmd_clock(char **word)
{
	(void)word;
	say("OK clock %.6f monotonic=%.6f boottime=%.6f", seconds(CLOCK_REALTIME),
	    seconds(CLOCK_MONOTONIC), seconds(CLOCK_BOOTTIME));
}

static void cmd_nonce(char **word)
{
	char *end = NULL;
	uint64_t value = word[1] ? strtoull(word[1], &end, 16) : nonce;

	if (end && (*end || end != word[1] + 16)) {
		say("ERR nonce usage: nonce [16 HEX DIGITS]");
		return;
	}
	nonce = value;
	say("OK nonce %016" PRIx64, value);
}

static bool on_off(const char *text, atomic_bool *flag)
{
	if (text && strcmp(text, "on") == 0)
		atomic_store(flag, true);
	else if (text && strcmp(text, "off") == 0)
		atomic_store(flag, false);
	else
		return false;
	return true;
}

static void cmd_ticks(char **word)
{
	long ms = parse_number(word[1], TICK_MS_MAX);

	if (ms > 0) {
		atomic_store(&tick_ms, (int)ms);
		atomic_store(&ticks_on, true);
	} else if (!on_off(word[1], &ticks_on)) {
		say("ERR ticks usage: ticks on|off|MS");
		return;
	}
	say("OK ticks %s ms=%d", atomic_load(&ticks_on) ? "on" : "off", atomic_load(&tick_ms));
}

static void cmd_deaf(char **word)
{
	if (!on_off(word[1], &deaf))
		say("ERR deaf usage: deaf on|off");
	else
		say("OK deaf %s", word[1]);
}

static void end_machine(int how)
{
	sync();
	if (umount("/disk") < 0)
		mount(NULL, "/disk", NULL, MS_REMOUNT | MS_RDONLY, NULL);
	tcdrain(console);
	reboot(how);
}

static void cmd_poweroff(char **word)
{
	(void)word;
	say("OK poweroff");
	end_machine(RB_POWER_OFF);
}

static void cmd_reboot(char **word)
{
	(void)word;
	say("OK reboot");
	end_machine(RB_AUTOBOOT);
}

static void cmd_panic(char **word)
{
	(void)word;
	say("OK panic");
	tcdrain(console);
	if (!write_text("/proc/sysrq-trigger", "c"))
		say("ERR panic cannot write to /proc/sysrq-trigger: %s", strerror(errno));
}

static void cmd_help(char **word);

/* "rest" words: the last of them takes the rest of the line, blanks included. */
static const struct command {
	const char *name;
	void (*run)(char **word);
	int words;
} commands[] = {
	{"fill", cmd_fill, 4},	 {"verify", cmd_verify, 1},	{"touch", cmd_touch, 2},
	{"dirty", cmd_dirty, 3}, {"write", cmd_write, 3},	{"read", cmd_read, 2},
	{"sync", cmd_sync, 1},	 {"seq", cmd_seq, 3},		{"clock", cmd_clock, 1},
	{"nonce", cmd_nonce, 2}, {"ticks", cmd_ticks, 2},	{"deaf", cmd_deaf, 2},
	{"panic", cmd_panic, 1}, {"poweroff", cmd_poweroff, 1}, {"reboot", cmd_reboot, 1},
	{"help", cmd_help, 1},
};

static void cmd_help(char **word)
{
	char names[256] = "";

	(void)word;
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		strncat(names, " ", sizeof(names) - strlen(names) - 1);
		strncat(names, commands[i].name, sizeof(names) - strlen(names) - 1);
	}
	say("OK help%s", names);
}

static void run_command(char *line)
{
	char *word[5] = {NULL};
	const struct command *command = NULL;
	size_t name_len;

	line += strspn(line, " ");
	name_len = strcspn(line, " ");
	if (name_len == 0)
		return;
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (strncmp(commands[i].name, line, name_len) == 0 && !commands[i].name[name_len])
			command = &commands[i];
	if (!command) {
		say("ERR %.*s unknown command", (int)name_len, line);
		return;
	}
	for (int i = 0; i < command->words && *line; i++) {
		word[i] = line;
		if (i + 1 == command->words)
			break;
		line += strcspn(line, " ");
		if (*line)
			*line++ = '\0';
		line += strspn(line, " ");
	}
	command->run(word);
}

static void *tick_thread(void *arg)
{
	(void)arg;
	for (uint64_t n = 1;; n++) {
		if (atomic_load(&ticks_on))
			say("TICK n=%" PRIu64 " nonce=%016" PRIx64 " up=%.3f", n, nonce,
			    seconds(CLOCK_MONOTONIC));
		nap_ns((int64_t)atomic_load(&tick_ms) * 1000000);
	}
	return NULL;
}

/* The ACPI power button or -1. Keyboards have a power key too, so it is found by its name. */
static int open_power_button(void)
{
	for (int i = 0; i < INPUT_DEVICES_MAX; i++) {
		char path[32], name[64] = "";
		int fd;

		snprintf(path, sizeof(path), "/dev/input/event%d", i);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			continue;
		if (ioctl(fd, EVIOCGNAME(sizeof(name) - 1), name) >= 0 &&
		    strcmp(name, "Power Button") == 0)
			return fd;
		close(fd);
	}
	return -1;
}

static void *button_thread(void *arg)
{
	int fd = *(const int *)arg;
	struct input_event event;
	unsigned presses = 0;

	while (read(fd, &event, sizeof(event)) == sizeof(event)) {
		if (event.type != EV_KEY || event.code != KEY_POWER || event.value != 1)
			continue;
		say("BUTTON n=%u %s", ++presses, atomic_load(&deaf) ? "ignored" : "obeyed");
		if (!atomic_load(&deaf))
			end_machine(RB_POWER_OFF);
	}
	return NULL;
}

static void make_raw(int fd)
{
	struct termios tio;

	if (tcgetattr(fd, &tio) < 0)
		return;
	cfmakeraw(&tio);
	tio.c_oflag |= OPOST | ONLCR;
	tcsetattr(fd, TCSANOW, &tio);
}

static void read_commands(void)
{
	char line[LINE_BYTES];
	size_t len = 0;
	bool too_long = false;

	for (;;) {
		char c;
		ssize_t got = read(console, &c, 1);

		if (got < 0 && errno != EINTR && errno != EIO)
			return;
		if (got <= 0) {
			nap_ns(10000000);
			continue;
		}
		if (c != '\n' && c != '\r') {
			if (len + 1 < sizeof(line))
				line[len++] = c;
			else
				too_long = true;
			continue;
		}
		line[len] = '\0';
		if (too_long)
			say("ERR line longer than %zu bytes", sizeof(line) - 1);
		else
			run_command(line);
		len = 0;
		too_long = false;
	}
}

/* guestd CONSOLE [WORD...]: the words go on the READY line. "--deaf" ignores the power button. */
int main(int argc, char **argv)
{
	static int button;
	char words[LINE_BYTES] = "";

	console = open(argc > 1 ? argv[1] : "/dev/ttyS0", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (console < 0) {
		perror("guestd: cannot open the console");
		return 1;
	}
	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], "--deaf") == 0) {
			atomic_store(&deaf, true);
			continue;
		}
		strncat(words, " ", sizeof(words) - strlen(words) - 1);
		strncat(words, argv[i], sizeof(words) - strlen(words) - 1);
	}
	make_raw(console);
	if (getrandom(&nonce, sizeof(nonce), 0) != sizeof(nonce)) {
		say("ERR guestd no random numbers");
		return 1;
	}
	say("BOOT nonce=%016" PRIx64, nonce);
	/* Opened before READY is said, or a press right after it would be lost. */
	button = open_power_button();
	if (button >= 0)
		start_thread(button_thread, &button);
	start_thread(tick_thread, NULL);
	say("READY nonce=%016" PRIx64 "%s", nonce, words);
	read_commands();
	return 1;
}
