/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * api_schema_spec.c - The VM's spec, for documentation and introspection; spec.c checks it
 */
#include "engine/api_priv.h"

#define ROW(...) (const struct api_member[]){ __VA_ARGS__, END_ROWS }

const struct api_type api_types_spec[] = {
	{ .name = "VmSpec", .kind = API_STRUCT, .open = true,
	  .doc = "What a VM is to be. Members whose names begin with \"x-\" are stored and ignored.",
	  .members = ROW(OPTIONAL("api", "int", "1"),
			 REQUIRED("launch", "Launch", "how QEMU is started"),
			 OPTIONAL("hibernate", "HibernateSpec", "defaults of vm-hibernate"),
			 OPTIONAL("restore", "RestoreSpec", "defaults of vm-restore"),
			 OPTIONAL("shutdown", "ShutdownSpec", "defaults of vm-powerdown"),
			 OPTIONAL("storage", "StorageSpec", "room for its memory images"),
			 OPTIONAL("labels", "{str}", "for selectors")) },
	{ .name = "Launch", .kind = API_STRUCT, .open = true,
	  .doc = "The machine. torpor adds its monitor, agent and console sockets, the disks, -S and "
	  "-incoming. Placeholders in args, env, wrapper and hooks: {name}, {uid}, {run-dir}, {state-dir}, "
	  "{fd:NAME}; {{ is a brace.",
	  .members = ROW(REQUIRED("binary", "str", "QEMU's program: a name or an absolute path"),
			 REQUIRED("args", "[str]", "its arguments, of the machine only"),
			 OPTIONAL("env", "{str}", "environment variables"),
			 OPTIONAL("disks", "{Disk}", "by id; args say drive=ID"),
			 OPTIONAL("agent", "Socket", "guest agent (default null)"),
			 OPTIONAL("console", "Socket", "serial console (default null)"),
			 OPTIONAL("wrapper", "[str]", "program and arguments that exec QEMU"),
			 OPTIONAL("user", "str", "user that QEMU runs as"),
			 OPTIONAL("group", "str", "group that QEMU runs as"),
			 OPTIONAL("cgroup", "path", "cgroup folder that QEMU is put into"),
			 OPTIONAL("fds", "{LaunchFd}", "descriptors that QEMU inherits, by name"),
			 OPTIONAL("secrets", "{Secret}", "secret objects, by id"),
			 OPTIONAL("hooks", "Hooks", "programs that are run around the guest's life")) },
	{ .name = "Disk", .kind = API_STRUCT, .open = true,
	  .doc = "A disk. Which file it is now is state of the VM: see query-vm.disks.",
	  .members = ROW(REQUIRED("file", "path", "its first file or block device"),
			 REQUIRED("format", "DiskFormat", "its format"),
			 OPTIONAL("read-only", "bool", "default false"),
			 OPTIONAL("options", "object", "further members of blockdev-add")) },
	{ .name = "DiskFormat", .kind = API_ENUM, .doc = "Formats of disks.",
	  .members = ROW(VALUE("qcow2", "QEMU's copy-on-write format"), VALUE("raw", "plain bytes")) },
	{ .name = "Socket", .kind = API_ALTERNATE, .doc = "A socket that torpor makes for QEMU.",
	  .members = ROW(REQUIRED("path", "str", "\"auto\": in the VM's run directory; else its absolute path"),
			 REQUIRED("none", "null", "there is none")) },
	{ .name = "LaunchFd", .kind = API_STRUCT, .open = true, .doc = "A descriptor for QEMU; one of the members.",
	  .members = ROW(OPTIONAL("tap", "str", "an existing tap interface"),
			 OPTIONAL("open", "path", "a file, opened for reading and writing")) },
	{ .name = "Secret", .kind = API_STRUCT, .open = true, .doc = "A secret, read by QEMU itself.",
	  .members = ROW(REQUIRED("file", "path", "where it is")) },
	{ .name = "Hooks", .kind = API_STRUCT, .open = true,
	  .doc = "Programs with arguments. Environment: TORPOR_VM, TORPOR_UID, TORPOR_REASON, TORPOR_RUN_DIR.",
	  .members = ROW(OPTIONAL("prepare", "[str]", "before QEMU starts"),
			 OPTIONAL("before-run", "[str]", "before the guest's first instruction"),
			 OPTIONAL("after-run", "[str]", "when the guest runs"),
			 OPTIONAL("release", "[str]", "once QEMU is gone, until it exits 0"),
			 OPTIONAL_RANGE("timeout", "seconds", 0.1, 3600, NULL, "limit of each (default 30)")) },
	{ .name = "HibernateSpec", .kind = API_STRUCT, .open = true, .doc = "Defaults of vm-hibernate.",
	  .members = ROW(OPTIONAL("methods", "[HibernateStep]", "default [\"save\"]"),
			 OPTIONAL("timeout", "seconds", "default: 120 s and 15 s for each GiB of RAM; slow levels: 120 s "
				  "and three times the estimate"),
			 OPTIONAL("pool", "name", "default \"default\""),
			 OPTIONAL_RANGE("level", "int", 1, 19, "zstd level", "default 1"),
			 OPTIONAL_RANGE("threads", "int", 0, 16, "threads", "default 0: one for each CPU"),
			 OPTIONAL("keep", "bool", "default false"),
			 OPTIONAL("reserve", "ReserveMode", "default full")) },
	{ .name = "RestoreSpec", .kind = API_STRUCT, .open = true, .doc = "Defaults of vm-restore.",
	  .members = ROW(OPTIONAL("mode", "RestoreMode", "default auto"),
			 OPTIONAL("clock", "ClockMode", "default host")) },
	{ .name = "StorageSpec", .kind = API_STRUCT, .open = true,
	  .doc = "Room for the VM's memory images. Standing room is for the largest image that its memory can "
	  "give (query-capacity: worst-case), in the pool of hibernate.pool; a hibernation uses it, and it is "
	  "taken again when the image is gone, or is in another pool. A definition succeeds where there is no room: the condition "
	  "StorageReserved says so and becomes True when there is.",
	  .members = ROW(OPTIONAL("standing", "bool", "hold room from the definition on (default false)"),
			 OPTIONAL("quota", "size", "0 to 10^18 bytes that all its images and its standing room may take, "
				  "in all pools together (default 0: no limit); less than they take only refuses new ones"),
			 OPTIONAL("retain", "RetainSpec", "which kept images stay (default: all)")) },
	{ .name = "RetainSpec", .kind = API_STRUCT, .open = true,
	  .doc = "Kept images, those that were restored before, that are too many or too old are deleted: after each "
	  "operation on the VM and hourly. Never the state of a hibernated VM, never one that is in use.",
	  .members = ROW(OPTIONAL("count", "int", "so many stay, the newest; 0 to 1000000"),
			 OPTIONAL("age", "seconds", "since they were saved; 1 to 10^10")) },
	{ .name = "ShutdownSpec", .kind = API_STRUCT, .open = true, .doc = "Defaults of vm-powerdown.",
	  .members = ROW(OPTIONAL("timeout", "seconds", "default 90"),
			 OPTIONAL("on-timeout", "ShutdownOnTimeout", "default fail")) },
	{ .name = NULL },
};
