/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cli_verbs.c - The table of verbs
 *
 * A verb is here once its commands exist. Its row is all that help, completion and argument parsing know of
 * it; docs/man/torpor.1 must say the same (a test compares).
 */
#include "cli_verb.h"

#define OPTIONS(...) (const struct cli_option[]){ __VA_ARGS__, { .name = NULL } }

#define IF_GENERATION { "if-generation", 0, CLI_INT, "N", "if-generation", \
			"Conflict unless the spec has this generation; 0: unless the VM is new" }
#define RESET_DISK { "reset-disk", 0, CLI_LIST, "ID", "reset-disks", \
		     "take the spec's file for this disk, giving up its present one" }
#define DEFINE_OPTIONS \
	{ "disk", 0, CLI_LIST, "ID=FILE[,format=FORMAT][,read-only]", NULL, \
	  "a disk, in args drive=ID; format (qcow2, raw) by the file if not given" }, \
	{ "agent", 0, CLI_TEXT, "auto|PATH", NULL, "a socket for the guest agent" }, \
	{ "console", 0, CLI_TEXT, "auto|PATH", NULL, "a socket for the serial console" }, \
	{ "label", 0, CLI_LIST, "KEY=VALUE", NULL, "a label for selectors" }, \
	IF_GENERATION, RESET_DISK
#define PAUSED { "paused", 0, CLI_FLAG, NULL, "paused", "leave the guest paused" }
#define RESTORE_OPTIONS \
	{ "image", 0, CLI_TEXT, "ID", "image", "this image (default: the VM's hibernation image)" }, \
	{ "keep", 0, CLI_FLAG, NULL, "keep", "keep the image afterwards" }, \
	{ "allow", 0, CLI_CHOICES, "stale-disks|reused-image|incompatible|other-vm", "allow", \
	  "accept what would refuse the image; several by commas, or given again" }, \
	{ "until", 0, CLI_CHOICE, "running|whole", "until", "wait until it runs (default), or all its memory is in" }, \
	{ "bandwidth", 0, CLI_SIZE, "SIZE", "bandwidth", "a lazy restore reads no more a second unasked" }, \
	{ "clock", 0, CLI_CHOICE, "host|keep", "clock", "the guest's clock afterwards (default: the spec's)" }
#define ON_TIMEOUT { "on-timeout", 0, CLI_CHOICE, "fail|quit", "on-timeout", \
		     "if the guest does not shut down in time (default: the spec's)" }

#define FILE_TEXT "FILE holds {\"name\", \"spec\"}, or a spec of the VM that the file is named after (NAME.json).\n" \
		  "After -- come QEMU's arguments, of the machine only; the first word is its binary\n" \
		  "unless it begins with '-' (default qemu-system-x86_64)."
#define IMAGE_FILE_TEXT "FILE has a '/' in it, as ./memory.zst, and needs no torpord; without one it is an image's ID."
#define SYNC (CLI_ONLINE | CLI_S_QUIET | CLI_S_SELECT)
#define OPERATION (SYNC | CLI_S_OPERATION)

const struct cli_verb cli_verbs[] = {
	{ .name = "define", .operands = "FILE|-|NAME", .after = "QEMU-ARG...", .min = 1, .max = 1,
	  .sets = CLI_ONLINE | CLI_S_QUIET, .names = CLI_FILE, .run = cmd_define,
	  .summary = "Define a VM or change its definition", .text = FILE_TEXT,
	  .options = OPTIONS(DEFINE_OPTIONS) },
	{ .name = "run", .operands = "FILE|-|NAME", .after = "QEMU-ARG...", .min = 1, .max = 1,
	  .sets = CLI_ONLINE | CLI_S_QUIET | CLI_S_OPERATION, .names = CLI_FILE, .run = cmd_run,
	  .summary = "Define a VM and start it", .text = FILE_TEXT, .command = "vm-start",
	  .options = OPTIONS(DEFINE_OPTIONS, PAUSED) },
	{ .name = "set", .operands = "NAME JSON|KEY=VALUE...", .min = 2, .max = 1000,
	  .sets = CLI_ONLINE | CLI_S_QUIET, .names = CLI_VM, .run = cmd_set,
	  .summary = "Change members of a VM's spec",
	  .text = "JSON is a merge patch (RFC 7396). KEY is a path such as hibernate.level, VALUE is JSON or else\n"
		  "a text; null removes a member. Labels are texts always. Sizes and times may have units:\n"
		  "storage.quota=500M, storage.retain.age=7d.",
	  .options = OPTIONS(IF_GENERATION, RESET_DISK) },
	{ .name = "undefine", .operands = "NAME...", .min = 1, .max = CLI_MANY, .sets = CLI_ONLINE | CLI_S_QUIET,
	  .names = CLI_VM, .run = cmd_sync, .command = "vm-undefine", .done = "undefined",
	  .summary = "Forget a VM; its disks stay",
	  .options = OPTIONS({ "images", 0, CLI_CHOICE, "refuse|keep|delete", "images",
			       "what becomes of its memory images (default refuse)" },
			     { "keep-running", 0, CLI_FLAG, NULL, "keep-running",
			       "let a running QEMU go on without torpor" }) },
	{ .name = "ls", .aliases = "list vms", .operands = "[NAME]...", .max = CLI_MANY,
	  .sets = CLI_S_SOCKET | CLI_S_LIST | CLI_S_SELECT, .names = CLI_VM, .run = cmd_ls,
	  .summary = "List VMs",
	  .options = OPTIONS({ "state", 0, CLI_CHOICE, "shutoff|starting|running|paused|suspended|hibernating|"
			       "hibernated|restoring|migrating|incoming|crashed|lost", NULL, "only those in this state" }) },
	{ .name = "show", .operands = "NAME...", .min = 1, .max = CLI_MANY, .sets = CLI_ONLINE | CLI_S_SELECT,
	  .names = CLI_VM, .run = cmd_show, .command = "query-vm", .summary = "Show all about a VM" },
	{ .name = "check", .operands = "NAME...", .min = 1, .max = CLI_MANY, .sets = CLI_ONLINE | CLI_S_SELECT,
	  .names = CLI_VM, .run = cmd_check, .command = "vm-hibernate",
	  .summary = "Tell what a VM can do now, and what is in the way",
	  .text = "Dry runs of start, hibernate and restore. The exit status is that of the one that its state is for:\n"
		  "start if it is shut off or crashed, restore if it is hibernated, else hibernate.\n"
		  "Besides: whether QEMU has the rights for a lazy restore, and what to grant if it has not." },
	{ .name = "capacity", .operands = "NAME...", .min = 1, .max = CLI_MANY, .sets = CLI_ONLINE | CLI_S_SELECT,
	  .names = CLI_VM, .run = cmd_capacity, .command = "query-capacity",
	  .summary = "Show what a VM's memory image may take, and where there is room for it" },
	{ .name = "start", .operands = "NAME...", .min = 1, .max = CLI_MANY, .sets = OPERATION, .names = CLI_VM,
	  .run = cmd_operation, .command = "vm-start", .states = "shutoff hibernated crashed",
	  .summary = "Boot a VM, or restore it if it is hibernated",
	  .options = OPTIONS({ "mode", 0, CLI_CHOICE, "auto|boot|restore", "mode", "default auto" },
			     { "discard-image", 0, CLI_FLAG, NULL, "discard-image",
			       "boot although it is hibernated; its saved memory is thrown away" },
			     PAUSED, RESTORE_OPTIONS) },
	{ .name = "stop", .operands = "NAME...", .min = 1, .max = CLI_MANY, .sets = OPERATION, .names = CLI_VM,
	  .run = cmd_stop, .command = "vm-powerdown", .states = "running suspended",
	  .summary = "Ask the guest to shut down; --force: end QEMU at once",
	  .options = OPTIONS({ "force", 0, CLI_FLAG, NULL, NULL, "as quit" }, ON_TIMEOUT) },
	{ .name = "powerdown", .operands = "NAME...", .min = 1, .max = CLI_MANY, .sets = OPERATION,
	  .names = CLI_VM, .run = cmd_operation, .command = "vm-powerdown", .states = "running suspended",
	  .summary = "Ask the guest to shut down", .options = OPTIONS(ON_TIMEOUT) },
	{ .name = "quit", .operands = "NAME...", .min = 1, .max = CLI_MANY, .sets = SYNC, .names = CLI_VM,
	  .run = cmd_sync, .command = "vm-quit", .done = "QEMU has ended",
	  .states = "starting running paused suspended hibernating restoring crashed",
	  .summary = "End QEMU at once, as if the plug were pulled" },
	{ .name = "pause", .operands = "NAME...", .min = 1, .max = CLI_MANY, .sets = SYNC, .names = CLI_VM,
	  .run = cmd_sync, .command = "vm-pause", .done = "paused", .states = "running",
	  .summary = "Stop the guest's processors" },
	{ .name = "resume", .operands = "NAME...", .min = 1, .max = CLI_MANY, .sets = SYNC, .names = CLI_VM,
	  .run = cmd_sync, .command = "vm-resume", .done = "running", .states = "paused",
	  .summary = "Let a paused guest go on" },
	{ .name = "reset", .operands = "NAME...", .min = 1, .max = CLI_MANY, .sets = SYNC, .names = CLI_VM,
	  .run = cmd_sync, .command = "vm-reset", .done = "reset", .states = "running paused",
	  .summary = "Reset the guest, as by its reset button" },
	{ .name = "hibernate", .operands = "NAME...", .min = 1, .max = CLI_MANY, .sets = OPERATION,
	  .names = CLI_VM, .run = cmd_operation, .command = "vm-hibernate", .states = "running paused suspended",
	  .summary = "Save a guest's memory to a compressed image and end QEMU",
	  .options = OPTIONS({ "pool", 0, CLI_TEXT, "POOL", "pool", "where the image goes (default: the spec's)" },
			     { "level", 0, CLI_INT, "1..19", "level", "zstd's level (default: the spec's)" },
			     { "threads", 0, CLI_INT, "0..16", "threads",
			       "compression threads; 0: one for each CPU" },
			     { "keep", 0, CLI_FLAG, NULL, "keep", "keep the image after its restore" },
			     { "reserve", 0, CLI_CHOICE, "full|estimate|none", "reserve",
			       "room that is taken before the guest is touched" },
			     { "wake", 0, CLI_FLAG, NULL, "wake",
			       "wake a guest in S3 where QEMU cannot save it asleep" }) },
	{ .name = "restore", .operands = "NAME...", .min = 1, .max = CLI_MANY, .sets = OPERATION,
	  .names = CLI_VM, .run = cmd_operation, .command = "vm-restore", .states = "hibernated",
	  .summary = "Bring a hibernated VM back",
	  .options = OPTIONS({ "mode", 0, CLI_CHOICE, "auto|eager|lazy", "mode", "default: the spec's" }, PAUSED,
			     RESTORE_OPTIONS) },
	{ .name = "discard", .operands = "NAME...", .min = 1, .max = CLI_MANY, .sets = SYNC, .names = CLI_VM,
	  .run = cmd_sync, .command = "vm-discard", .done = "discarded", .states = "hibernated",
	  .summary = "Throw away the memory of a hibernated VM" },
	{ .name = "resolve", .operands = "NAME here|elsewhere|nobody", .min = 2, .max = 2,
	  .sets = CLI_ONLINE | CLI_S_QUIET, .names = CLI_VM, .run = cmd_sync, .command = "vm-resolve",
	  .done = "resolved", .summary = "Say where the guest of a lost VM is" },
	{ .name = "wait", .operands = "NAME...", .min = 1, .max = CLI_MANY, .sets = CLI_ONLINE | CLI_S_SELECT,
	  .names = CLI_VM, .run = cmd_wait, .summary = "Wait until a VM is in a state",
	  .text = "Fails once an operation fails that was to bring it there.",
	  .options = OPTIONS({ "for", 0, CLI_TEXT, "state=STATE", NULL, "what to wait for" },
			     { "timeout", 0, CLI_DURATION, "TIME", NULL, "at most so long (default: for ever)" }) },
	{ .name = "events", .operands = "[NAME]...", .max = CLI_MANY, .sets = CLI_ONLINE, .names = CLI_VM,
	  .run = cmd_events, .summary = "Print events as they come",
	  .text = "With --json one object a line, as it came.",
	  .options = OPTIONS({ "event", 'e', CLI_LIST, "EVENT", NULL, "only these; QEMU_EVENT: QEMU's own, too" },
			     { "no-progress", 0, CLI_FLAG, NULL, NULL, "without those that only tell progress" }) },
	{ .name = "log", .operands = "NAME", .min = 1, .max = 1, .sets = CLI_S_SOCKET, .names = CLI_VM,
	  .run = cmd_log, .summary = "Print what QEMU said",
	  .options = OPTIONS({ "follow", 'f', CLI_FLAG, NULL, NULL, "go on as it grows" }) },
	{ .name = "console", .operands = "NAME", .min = 1, .max = 1, .sets = CLI_S_SOCKET, .names = CLI_VM,
	  .run = cmd_console, .summary = "Connect to a VM's serial console; Ctrl-] ends",
	  .text = "Where standard input is no terminal it ends once that has ended and the guest was silent for a second." },
	{ .name = "monitor", .operands = "NAME COMMAND [JSON]", .min = 2, .max = 3, .sets = CLI_ONLINE,
	  .names = CLI_VM, .run = cmd_monitor, .command = "vm-monitor",
	  .summary = "Send a QMP command to QEMU; prints JSON",
	  .options = OPTIONS({ "timeout", 0, CLI_DURATION, "TIME", "timeout", "limit for the answer (default 10)" }) },
	{ .name = "ops", .aliases = "op", .operands = "[NAME]", .max = 1, .sets = CLI_S_SOCKET | CLI_S_LIST, .names = CLI_VM,
	  .run = cmd_ops, .command = "query-operations", .summary = "List operations, the newest first",
	  .options = OPTIONS({ "status", 0, CLI_CHOICE, "running|succeeded|failed|cancelled|stuck", "status",
			       "only with this status" },
			     { "kind", 0, CLI_CHOICE, "start|powerdown|hibernate|restore|image-move|image-verify", "kind",
			       "only of this kind" },
			     { "limit", 0, CLI_INT, "1..10000", "limit", "at most so many" }) },
	{ .noun = "op", .name = "show", .operands = "ID...", .min = 1, .max = CLI_MANY, .sets = CLI_ONLINE,
	  .names = CLI_OPERATION, .run = cmd_op_show, .command = "query-operation",
	  .summary = "Show all about an operation" },
	{ .noun = "op", .name = "wait", .operands = "ID...", .min = 1, .max = CLI_MANY,
	  .sets = CLI_ONLINE | CLI_S_QUIET, .names = CLI_OPERATION, .run = cmd_op_wait,
	  .summary = "Wait for the end of an operation",
	  .text = "Its end is the exit status. Ctrl-C ends the waiting only.",
	  .options = OPTIONS({ "timeout", 0, CLI_DURATION, "TIME", NULL, "at most so long (default: for ever)" }) },
	{ .noun = "op", .name = "cancel", .operands = "ID...", .min = 1, .max = CLI_MANY,
	  .sets = CLI_ONLINE | CLI_S_QUIET, .names = CLI_OPERATION, .run = cmd_op_sync,
	  .command = "operation-cancel", .done = "turns back", .summary = "Turn an operation back" },
	{ .noun = "op", .name = "retry", .operands = "ID...", .min = 1, .max = CLI_MANY,
	  .sets = CLI_ONLINE | CLI_S_QUIET, .names = CLI_OPERATION, .run = cmd_op_sync,
	  .command = "operation-retry", .done = "tries again",
	  .summary = "Try the step of a stuck operation again at once" },
	{ .noun = "image", .name = "ls", .aliases = "list", .operands = "[NAME]", .max = 1,
	  .sets = CLI_S_SOCKET | CLI_S_LIST, .names = CLI_VM, .run = cmd_image_ls, .command = "query-images",
	  .summary = "List memory images",
	  .options = OPTIONS({ "pool", 0, CLI_TEXT, "POOL", "pool", "only in this pool" },
			     { "state", 0, CLI_CHOICE, "partial|complete|consumed|corrupt|unavailable", "state",
			       "only in this state" }) },
	{ .noun = "image", .name = "rm", .operands = "ID...", .min = 1, .max = CLI_MANY,
	  .sets = CLI_ONLINE | CLI_S_QUIET, .names = CLI_IMAGE, .run = cmd_image_rm, .command = "image-delete",
	  .done = "deleted", .summary = "Delete memory images",
	  .text = "With an image goes what an interrupted move has copied of it. The state of a hibernated VM stays:\n"
		  "torpor discard throws that away.",
	  .options = OPTIONS({ "pool", 0, CLI_TEXT, "POOL", "pool",
			       "what this pool has of it: the copy that a move did not finish" }) },
	{ .noun = "image", .name = "mv", .operands = "ID POOL", .min = 2, .max = 2,
	  .sets = CLI_ONLINE | CLI_S_QUIET | CLI_S_OPERATION, .names = CLI_IMAGE, .run = cmd_image_mv,
	  .command = "image-move", .summary = "Move a memory image to another pool; verified before the first is removed" },
	{ .noun = "image", .name = "info", .operands = "FILE|ID", .min = 1, .max = 1, .sets = CLI_ONLINE,
	  .names = CLI_IMAGE_FILE, .run = cmd_image_info, .summary = "Show what is in an image, and whose it is",
	  .text = IMAGE_FILE_TEXT },
	{ .noun = "image", .name = "verify", .operands = "FILE...|ID...", .min = 1, .max = CLI_MANY,
	  .sets = CLI_ONLINE | CLI_S_QUIET, .names = CLI_IMAGE_FILE, .run = cmd_image_verify,
	  .summary = "Check all of an image, and name what is damaged", .text = IMAGE_FILE_TEXT,
	  .options = OPTIONS({ "all", 0, CLI_FLAG, NULL, NULL, "all images that torpord knows, one after the other" }) },
	{ .noun = "image", .name = "cat", .operands = "FILE|ID", .min = 1, .max = 1, .sets = CLI_S_SOCKET,
	  .names = CLI_IMAGE_FILE, .run = cmd_image_cat, .summary = "Write the plain QEMU stream of an image",
	  .text = IMAGE_FILE_TEXT,
	  .options = OPTIONS({ "salvage", 0, CLI_FLAG, NULL, NULL, "what of a damaged one can be read" }) },
	{ .noun = "image", .name = "map", .operands = "FILE|ID", .min = 1, .max = 1, .sets = CLI_S_SOCKET,
	  .names = CLI_IMAGE_FILE, .run = cmd_image_map, .summary = "Draw where an image's memory is zero, or hard to compress",
	  .text = IMAGE_FILE_TEXT,
	  .options = OPTIONS({ "svg", 0, CLI_TEXT, "FILE|-", NULL, "as an SVG picture into this file, or to standard output" }) },
	{ .noun = "pool", .name = "ls", .aliases = "list", .sets = CLI_S_SOCKET | CLI_S_LIST, .run = cmd_pool_ls,
	  .command = "query-pools", .summary = "List pools" },
	{ .noun = "pool", .name = "define", .operands = "NAME DIR", .min = 2, .max = 2,
	  .sets = CLI_ONLINE | CLI_S_QUIET, .names = CLI_FILE, .run = cmd_pool_define, .command = "pool-define",
	  .summary = "Make a folder a pool, or change a pool that was made so",
	  .text = "DIR is for the pool alone; it is made if the folder above it is there. What is not given has its\n"
		  "default. Another DIR only while nothing uses the pool.",
	  .options = OPTIONS({ "quota", 0, CLI_SIZE, "SIZE", "quota", "its images take no more (default: no limit)" },
			     { "low-water", 0, CLI_SIZE, "SIZE", "low-water",
			       "its state is low where less is left (default: 5 %; 0: never)" }) },
	{ .noun = "pool", .name = "rm", .operands = "NAME...", .min = 1, .max = CLI_MANY,
	  .sets = CLI_ONLINE | CLI_S_QUIET, .names = CLI_POOL, .run = cmd_sync, .command = "pool-undefine",
	  .done = "forgotten, nothing was deleted", .summary = "Forget a pool; what is in its folder stays" },
	{ .name = "df", .sets = CLI_ONLINE, .run = cmd_df, .command = "query-pools",
	  .summary = "Show the room in pools: of the disk, of images, reserved, standing",
	  .text = "ROOM is what new images may take: what is available, less what is reserved, within the quota.\n"
		  "AVAILABLE is what torpord may take of the file system; as root that is more than df(1) says, which\n"
		  "leaves out the blocks that are reserved for root." },
	{ .name = "prune", .operands = "[NAME]...", .max = CLI_MANY, .sets = CLI_ONLINE | CLI_S_QUIET, .names = CLI_VM,
	  .run = cmd_prune, .command = "query-images", .summary = "Delete memory images that nobody needs",
	  .text = "Those that were never finished, and those kept after a restore beyond storage.retain of the spec; of\n"
		  "these VMs, or all. The state of a hibernated VM never is among them.",
	  .options = OPTIONS({ "dry-run", 0, CLI_FLAG, NULL, NULL, "only print what would be deleted, and what it frees" },
			     { "kept", 0, CLI_FLAG, NULL, NULL, "all that were kept after a restore, too" },
			     { "age", 0, CLI_DURATION, "TIME", NULL,
			       "of kept images, and of --orphans, only those older than this (7d, 12h)" },
			     { "corrupt", 0, CLI_FLAG, NULL, NULL, "damaged ones, too" },
			     { "orphans", 0, CLI_FLAG, NULL, NULL,
			       "all images of VMs that are not defined any more, too" }) },
	{ .name = "host", .sets = CLI_ONLINE, .run = cmd_host, .command = "query-host",
	  .summary = "Show the host: memory, pools, QEMU" },
	{ .name = "raw", .operands = "COMMAND [JSON]|JSON", .min = 1, .max = 2, .sets = CLI_ONLINE,
	  .run = cmd_raw, .summary = "Send a command of the wire protocol; prints JSON",
	  .text = "JSON is the arguments, or the whole request: {\"execute\": ..., \"arguments\": ...}." },
	{ .name = "completion", .operands = "bash|zsh|fish", .min = 1, .max = 1, .names = CLI_SHELL,
	  .run = cmd_completion, .summary = "Print a completion script for a shell" },
	{ .name = "version", .sets = CLI_ONLINE, .run = cmd_version, .command = "query-version",
	  .summary = "Print the versions of client and daemon" },
	{ .name = "help", .operands = "[VERB]", .max = 2, .names = CLI_VERB, .run = cmd_help,
	  .summary = "Print help" },
	{ .name = NULL },
};
