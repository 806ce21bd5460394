/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * api_schema_commands.c - Every command: role, arguments, result, documentation
 */
#include "engine/api_priv.h"

#define ROW(...) (const struct api_member[]){ __VA_ARGS__, END_ROWS }
#define NAME REQUIRED("name", "name", "the VM")
#define LIMIT OPTIONAL_RANGE("limit", "int", 1, 10000, "entries", "at most so many entries")

const struct api_member api_operation_args[] = {
	OPTIONAL("wait", "bool", "answer when the operation has ended, with its record; a failed or "
		 "cancelled one is an error with data.record (default false: {\"operation\": ID} at once)"),
	OPTIONAL("timeout", "seconds", "deadline of the whole, from acceptance; 0: none. Before the "
		 "commit point the operation is rolled back by then, after it it completes late"),
	OPTIONAL("operation-id", "name", "the client's name for the operation; the same id with equal "
		 "arguments returns the same operation"),
	OPTIONAL("busy", "BusyMode", "what to do when another operation holds the VM (default fail)"),
	OPTIONAL("dry-run", "bool", "only check: returns all blockers, the plan and an estimate "
		 "(DryRun); the guest is not touched"),
	END_ROWS
};

/* What vm-start shares with vm-restore. */
#define RESTORE_ARGS \
	OPTIONAL("paused", "bool", "leave the guest paused (default: as it was)"), \
	OPTIONAL("image", "image-id", "this image (default: the VM's hibernation image)"), \
	OPTIONAL("keep", "bool", "keep the image when the VM is whole (default: the spec's)"), \
	OPTIONAL("allow", "[RestoreAllowance]", "what would otherwise refuse the image"), \
	OPTIONAL("until", "RestoreUntil", "when the operation ends for waiters (default running): when the guest " \
		 "runs, or when all its memory is in; an eager restore is whole when it runs"), \
	OPTIONAL("bandwidth", "size", "bytes a second at which a lazy restore reads what the guest has not asked " \
		 "for (default 0: no limit)"), \
	OPTIONAL("clock", "ClockMode", "the guest's clock after the restore (default: the spec's)")

const struct api_command api_commands[] = {
	/* --- the connection and the engine --- */
	{ .name = "qmp_capabilities", .role = TORPOR_ROLE_NONE, .handler = api_qmp_capabilities,
	  .args = ROW(OPTIONAL("enable", "[QmpCapability]", "must be empty: none is offered")),
	  .doc = "Ends the negotiation; the first command on each connection." },
	{ .name = "query-version", .role = TORPOR_ROLE_READ, .handler = api_query_version,
	  .returns = "VersionInfo", .doc = "Version of torpor and of this interface, and which engine this is." },
	{ .name = "query-commands", .role = TORPOR_ROLE_READ, .handler = api_query_commands,
	  .returns = "[CommandInfo]", .doc = "Names of all commands." },
	{ .name = "query-qmp-schema", .role = TORPOR_ROLE_READ, .handler = api_query_qmp_schema,
	  .returns = "[any]", .doc = "This interface in QAPI's introspection form." },
	{ .name = "query-host", .role = TORPOR_ROLE_READ, .handler = api_query_host, .returns = "HostInfo",
	  .doc = "Memory, pools, QEMU binaries." },
	{ .name = "event-filter", .role = TORPOR_ROLE_READ, .handler = api_event_filter,
	  .args = ROW(OPTIONAL("events", "[EventName]", "only these events (default: all but QEMU_EVENT)"),
		      OPTIONAL("vms", "[name]", "of events about a VM only those about these VMs (default: all)"),
		      OPTIONAL("progress", "bool", "whether OPERATION events that only report progress "
			       "come, at most one a second and operation (default true)")),
	  .doc = "Narrows the events of this connection. Replaces the former filter: a member that is left "
	  "out has its default." },
	{ .name = "getfd", .role = TORPOR_ROLE_OPERATE, .handler = api_getfd,
	  .args = ROW(REQUIRED("fdname", "str", "the name; must not begin with a digit")),
	  .doc = "Takes the file descriptor that came with this request (SCM_RIGHTS) under a name, which "
	  "belongs to this connection. A descriptor that has the name is closed." },
	{ .name = "closefd", .role = TORPOR_ROLE_OPERATE, .handler = api_closefd,
	  .args = ROW(REQUIRED("fdname", "str", "the name")), .doc = "Closes a descriptor made by getfd." },

	/* --- VMs --- */
	{ .name = "vm-define", .role = TORPOR_ROLE_ADMIN, .handler = api_vm_define, .returns = "DefineResult",
	  .args = ROW(NAME, REQUIRED("spec", "VmSpec", "what the VM is to be"),
		      OPTIONAL("if-generation", "int", "Conflict unless this is the present generation; 0: the "
			       "VM must not exist"),
		      OPTIONAL("reset-disks", "[name]", "disks whose present file is given up for the one "
			       "that this spec names")),
	  .doc = "Creates the VM or replaces its spec. An equal spec changes nothing. A changed launch takes "
	  "effect at the next boot." },
	{ .name = "vm-set", .role = TORPOR_ROLE_ADMIN, .handler = api_vm_set, .returns = "DefineResult",
	  .args = ROW(NAME, REQUIRED("merge", "object", "JSON merge patch (RFC 7396) of the spec"),
		      OPTIONAL("if-generation", "int", "Conflict unless this is the present generation"),
		      OPTIONAL("reset-disks", "[name]", "as for vm-define")),
	  .doc = "Changes members of the spec." },
	{ .name = "vm-undefine", .role = TORPOR_ROLE_ADMIN, .handler = api_vm_undefine,
	  .args = ROW(NAME, OPTIONAL("images", "UndefineImages", "what becomes of its memory images (default "
				     "refuse)"),
		      OPTIONAL("keep-running", "bool", "let a running QEMU go on without torpor")),
	  .doc = "Forgets the VM. Disks are never deleted." },
	{ .name = "query-vm", .role = TORPOR_ROLE_READ, .handler = api_query_vm, .returns = "VmInfo",
	  .args = ROW(NAME), .doc = "All about one VM. Without the role operate, environment values and "
	  "secrets of its spec are left out." },
	{ .name = "query-vms", .role = TORPOR_ROLE_READ, .handler = api_query_vms, .returns = "[VmInfo]",
	  .args = ROW(OPTIONAL("selector", "str", "labels: KEY=VALUE,KEY!=VALUE,KEY"),
		      OPTIONAL("state", "VmState", "only VMs in this state"),
		      OPTIONAL("names", "[name]", "only these VMs"),
		      OPTIONAL("fields", "[str]", "only these members of each"), LIMIT,
		      OPTIONAL("after", "name", "only VMs whose name sorts after this one")),
	  .doc = "VMs, sorted by name." },
	{ .name = "vm-discard", .role = TORPOR_ROLE_OPERATE, .handler = api_vm_discard, .args = ROW(NAME),
	  .returns = "Changed",
	  .doc = "Throws away the memory of a hibernated VM, which is shut off then." },
	{ .name = "vm-resolve", .role = TORPOR_ROLE_OPERATE, .handler = api_vm_resolve,
	  .args = ROW(NAME, REQUIRED("owner", "VmOwner", "where the guest is, as its operator knows")),
	  .doc = "Ends the state lost; query-vm.resolve lists what is allowed and what each would do." },

	/* --- running --- */
	{ .name = "vm-start", .role = TORPOR_ROLE_OPERATE, .operation = true, .handler = api_vm_start,
	  .returns = "OperationReply",
	  .args = ROW(NAME, OPTIONAL("mode", "StartMode", "default auto"),
		      OPTIONAL("discard-image", "bool", "boot although the VM is hibernated; its saved memory "
			       "is thrown away"), RESTORE_ARGS),
	  .doc = "Boots the VM, or restores it if it is hibernated." },
	{ .name = "vm-pause", .role = TORPOR_ROLE_OPERATE, .handler = api_vm_pause,
	  .args = ROW(NAME), .returns = "Changed", .doc = "Stops the guest's vCPUs." },
	{ .name = "vm-resume", .role = TORPOR_ROLE_OPERATE, .handler = api_vm_resume,
	  .args = ROW(NAME), .returns = "Changed",
	  .doc = "Lets a paused guest go on, whatever paused it." },
	{ .name = "vm-reset", .role = TORPOR_ROLE_OPERATE, .handler = api_vm_reset, .args = ROW(NAME),
	  .doc = "Resets the guest, as by its reset button." },
	{ .name = "vm-powerdown", .role = TORPOR_ROLE_OPERATE, .operation = true,
	  .handler = api_vm_powerdown, .returns = "OperationReply",
	  .args = ROW(NAME, OPTIONAL("on-timeout", "ShutdownOnTimeout", "default: the spec's")),
	  .doc = "Asks the guest to shut down, again every 5 seconds (default timeout: the spec's)." },
	{ .name = "vm-quit", .role = TORPOR_ROLE_OPERATE, .handler = api_vm_quit,
	  .args = ROW(NAME), .returns = "Changed",
	  .doc = "Ends QEMU at once, as if the plug were pulled. Cancels what runs, never refused as Busy." },
	{ .name = "vm-monitor", .role = TORPOR_ROLE_ADMIN, .handler = api_vm_monitor, .returns = "any",
	  .args = ROW(NAME, REQUIRED("execute", "str", "QMP command"),
		      OPTIONAL("arguments", "object", "its arguments"),
		      OPTIONAL("timeout", "seconds", "limit for the answer (default 10)")),
	  .doc = "Sends a QMP command to QEMU and returns its answer. Commands that the engine owns are "
	  "refused; while an operation holds the VM only query commands pass." },
	{ .name = "vm-hibernate", .role = TORPOR_ROLE_OPERATE, .operation = true,
	  .handler = api_vm_hibernate, .returns = "OperationReply",
	  .args = ROW(NAME, OPTIONAL("methods", "[HibernateStep]", "tried in order; one that fails before its "
				     "commit point hands over (default: the spec's)"),
		      OPTIONAL("pool", "name", "where the image goes (default: the spec's)"),
		      OPTIONAL_RANGE("level", "int", 1, 19, "zstd level", "default: the spec's"),
		      OPTIONAL_RANGE("threads", "int", 0, 16, "threads", "compression threads; 0: one for each "
				     "CPU (default: the spec's)"),
		      OPTIONAL("keep", "bool", "keep the image after its restore (default: the spec's)"),
		      OPTIONAL("reserve", "ReserveMode", "room taken before the guest is touched (default: "
			       "the spec's)"),
		      OPTIONAL("wake", "bool", "a guest in S3 may be woken where this QEMU cannot save it "
			       "asleep")),
	  .doc = "Saves the guest's memory and devices to a compressed image and ends QEMU." },
	{ .name = "vm-restore", .role = TORPOR_ROLE_OPERATE, .operation = true, .handler = api_vm_restore,
	  .returns = "OperationReply",
	  .args = ROW(NAME, OPTIONAL("mode", "RestoreMode", "default: the spec's"), RESTORE_ARGS),
	  .doc = "Brings a hibernated VM back, or a shut off one from the named image." },

	/* --- images and pools --- */
	{ .name = "query-images", .role = TORPOR_ROLE_READ, .handler = api_query_images, .returns = "[ImageInfo]",
	  .args = ROW(OPTIONAL("vm", "name", "only of this VM"), OPTIONAL("pool", "name", "only in this pool"),
		      OPTIONAL("state", "ImageState", "only in this state"), LIMIT,
		      OPTIONAL("after", "image-id", "only ids that sort after this one")),
	  .doc = "Memory images, sorted by id." },
	{ .name = "image-delete", .role = TORPOR_ROLE_OPERATE, .handler = api_image_delete,
	  .args = ROW(REQUIRED("image", "image-id", "the image"),
		      OPTIONAL("pool", "name", "what this pool has of it: an unfinished copy of a move (default: the "
			       "image, wherever it is)")),
	  .doc = "Deletes a memory image; refused for the only state of a hibernated VM (vm-discard), and (Busy) "
	  "for an image that an operation works with." },
	{ .name = "image-verify", .role = TORPOR_ROLE_OPERATE, .operation = true,
	  .handler = api_image_verify, .returns = "OperationReply",
	  .args = ROW(REQUIRED("image", "image-id", "the image")),
	  .doc = "Reads all of an image, in the background: every frame, the index, the footer, and whether its "
	  "manifest describes it. Holds no VM, which need not be defined any more; two run at once, more wait. Good: "
	  "the image's \"verified\" time. Damaged: Corrupt with data.damage, and the image is corrupt until a later "
	  "verification succeeds. Result: image, frames, pages, bytes, raw-bytes, seconds. It has no deadline "
	  "but the one given. The engine's end ends it: cancelled, or without a record where the engine was killed." },
	{ .name = "image-move", .role = TORPOR_ROLE_OPERATE, .operation = true,
	  .handler = api_image_move, .returns = "OperationReply",
	  .args = ROW(REQUIRED("image", "image-id", "the image; its VM must be defined, in whatever state"),
		      REQUIRED("pool", "name", "where it is to be")),
	  .doc = "Copies an image into another pool, checks the copy, then removes it from the pool where it was. "
	  "What an interrupted move has copied stays there (partial); the next one to that pool goes on with "
	  "it. Result: image, pool, bytes, copied-bytes, kept-bytes, seconds. It has no deadline but the one given." },
	{ .name = "query-capacity", .role = TORPOR_ROLE_READ, .handler = api_query_capacity, .returns = "CapacityInfo",
	  .args = ROW(REQUIRED("name", "name", "the VM")),
	  .doc = "What a memory image of a VM may take, and where there is room for it. Answers within seconds also "
	  "where QEMU or a pool does not." },
	{ .name = "query-pools", .role = TORPOR_ROLE_READ, .handler = api_query_pools, .returns = "[PoolInfo]",
	  .doc = "Pools that hold memory images, sorted by name." },
	{ .name = "pool-define", .role = TORPOR_ROLE_ADMIN, .handler = api_pool_define,
	  .args = ROW(REQUIRED("name", "name", "the pool"),
		      REQUIRED("path", "path", "its folder, for it alone; made (0700) if the folder above is there"),
		      OPTIONAL("quota", "size", "bytes its images may take, not less than is in it (default 0: no "
			       "limit)"),
		      OPTIONAL("low-water", "size", "its state is low where less is left (default: 5 % of quota or "
			       "file system; 0: never)")),
	  .doc = "Makes a folder a pool, durably, or changes quota and low-water of one made so. Another path is a "
	  "Conflict unless nothing uses the pool. Answers within 10 s whatever the storage does." },
	{ .name = "pool-undefine", .role = TORPOR_ROLE_ADMIN, .handler = api_pool_undefine,
	  .args = ROW(REQUIRED("name", "name", "the pool")),
	  .doc = "Forgets a pool of pool-define; nothing on disk is deleted. Refused while an operation works in it "
	  "(Busy), it holds the state of a VM or a complete image, or a spec names it (InvalidState, data.vms, "
	  "data.images)." },

	/* --- operations --- */
	{ .name = "query-operations", .role = TORPOR_ROLE_READ, .handler = api_query_operations,
	  .returns = "[Operation]",
	  .args = ROW(OPTIONAL("vm", "name", "only of this VM"),
		      OPTIONAL("status", "OperationStatus", "only with this status"),
		      OPTIONAL("kind", "str", "only of this kind"),
		      OPTIONAL("parent", "name", "only parts of this operation"), LIMIT,
		      OPTIONAL("before", "name", "only those that are older than this operation")),
	  .doc = "Operations, the newest first." },
	{ .name = "query-operation", .role = TORPOR_ROLE_READ, .handler = api_query_operation,
	  .returns = "Operation", .args = ROW(REQUIRED("id", "name", "the operation")),
	  .doc = "The record of one operation." },
	{ .name = "operation-wait", .role = TORPOR_ROLE_READ, .handler = api_operation_wait,
	  .returns = "Operation", .args = ROW(REQUIRED("id", "name", "the operation"),
					      OPTIONAL("timeout", "seconds", "answer after this time even if "
						       "it still runs (default: none)")),
	  .doc = "Answers with the record when the operation has ended." },
	{ .name = "operation-cancel", .role = TORPOR_ROLE_OPERATE, .handler = api_operation_cancel,
	  .args = ROW(REQUIRED("id", "name", "the operation")),
	  .doc = "Turns the operation back; InvalidState with data.phase once its commit point is passed." },
	{ .name = "operation-retry", .role = TORPOR_ROLE_OPERATE, .handler = api_operation_retry,
	  .args = ROW(REQUIRED("id", "name", "the operation")),
	  .doc = "Tries the step of a stuck operation again at once." },
	{ .name = NULL },
};
