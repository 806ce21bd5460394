/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * api_schema_events.c - Events and error classes
 */
#include "engine/api_priv.h"

#define ROW(...) (const struct api_member[]){ __VA_ARGS__, END_ROWS }
#define VM REQUIRED("vm", "name", "the VM")
#define SEQ REQUIRED("seq", "int", "number of the event on this connection")

/* X(name, documentation, members...) */
#define EVENTS(X) \
	X(OPERATION, "An operation entered a phase, made progress or ended. Data: its record without timeline.", \
	  REQUIRED("id", "name", "its id"), REQUIRED("vm", "name", "the VM that it holds"), \
	  REQUIRED("kind", "str", "as in Operation, like all further members"), \
	  REQUIRED("phase", "str", "where it is"), REQUIRED("status", "OperationStatus", "how it stands"), \
	  REQUIRED("progress", "Progress", "how far it is")) \
	X(VM_STATE, "A VM's state or reason changed.", VM, REQUIRED("uid", "str", "its UUID"), \
	  REQUIRED("state", "VmState", "what it is now"), REQUIRED("reason", "str", "why"), \
	  REQUIRED("running", "bool", "the vCPUs execute"), \
	  REQUIRED("since", "time", "when it changed"), \
	  REQUIRED("operation", "any", "id of the operation that holds it, or null"), \
	  REQUIRED("generation", "int", "of the spec")) \
	X(VM_DEFINED, "A VM was defined, or its spec changed.", VM, \
	  REQUIRED("generation", "int", "of the spec"), REQUIRED("uid", "str", "its UUID")) \
	X(VM_UNDEFINED, "A VM was undefined.", VM) \
	X(VM_GUEST_PANICKED, "The guest's kernel panicked. Further data as QEMU gives it.", VM) \
	X(VM_IO_ERROR, "A disk reported an error. Further data as QEMU gives it.", VM) \
	X(VM_WATCHDOG, "The guest's watchdog fired. Further data as QEMU gives it.", VM) \
	X(AGENT, "The guest agent came or went.", VM, REQUIRED("agent", "AgentState", "what it is now")) \
	X(CONDITION, "A condition of a VM changed its status or reason.", VM, \
	  REQUIRED("type", "str", "StorageReserved, Restorable"), REQUIRED("status", "str", "True, False, Unknown"), \
	  REQUIRED("reason", "str", "one word"), REQUIRED("message", "str", "one sentence"), \
	  REQUIRED("last-transition", "time", "when the status changed")) \
	X(IMAGE, "A memory image was made, changed its state or was deleted.", \
	  REQUIRED("vm", "any", "whose it is; null: unknown"), REQUIRED("image", "image-id", "the image"), \
	  REQUIRED("state", "str", "an ImageState, or deleted"), \
	  OPTIONAL("pool", "name", "where"), \
	  OPTIONAL("reason", "str", "moved, verified, retain.count, retain.age, copy; none: on request")) \
	X(POOL, "A pool's state changed.", REQUIRED("pool", "name", "the pool"), \
	  REQUIRED("state", "PoolState", "what it is now"), \
	  OPTIONAL("available", "size", "bytes free at the last look; not of one that is missing"), \
	  REQUIRED("message", "str", "why it is missing")) \
	X(QEMU_EVENT, "An event of QEMU; comes only when event-filter names it.", VM, \
	  REQUIRED("event", "str", "QEMU's name for it"), OPTIONAL("data", "any", "QEMU's data")) \
	X(EVENTS_LOST, "Events were not sent, as too much waited for this connection. Passes every filter.", \
	  REQUIRED("count", "int", "how many")) \
	X(TORPOR_SHUTDOWN, "The engine is about to end; VMs go on.", OPTIONAL("reason", "str", "why"))

#define AS_EVENT(n, d, ...) { .name = #n, .doc = (d), .members = ROW(__VA_ARGS__, SEQ) },
#define AS_VALUE(n, d, ...) VALUE(#n, d),

const struct api_event_type api_events[] = {
	EVENTS(AS_EVENT)
	{ .name = NULL },
};

static const struct api_member event_names[] = {
	EVENTS(AS_VALUE)
	END_ROWS
};

const struct api_type api_types_events[] = {
	{ .name = "EventName", .kind = API_ENUM, .doc = "Events.", .members = event_names },
	{ .name = NULL },
};

const struct api_class api_classes[] = {
	{ "GenericError", "never", "bad arguments (data.argument), and what no other class says" },
	{ "CommandNotFound", "never", "no such command, or not now (negotiation)" },
	{ "NotFound", "never", "no such VM, image, pool, operation" },
	{ "Exists", "never", "the name or id is taken" },
	{ "Conflict", "now", "spec or generation differ: read it and try again" },
	{ "Busy", "later", "another operation holds the VM (data.operation, kind, phase)" },
	{ "InvalidState", "never", "not in this state (data.use: the verb to use)" },
	{ "InsufficientSpace", "later", "no room in the pool (data.pool, required, available; quota: the one in the way)" },
	{ "InsufficientMemory", "later", "no memory on the host (data.required, available)" },
	{ "Timeout", "now", "not done in time; rolled back" },
	{ "Cancelled", "now", "cancelled; rolled back" },
	{ "Unsupported", "never", "this VM on this host cannot do it" },
	{ "Blocked", "later", "something temporary is in the way (data.blockers)" },
	{ "AgentUnavailable", "later", "the guest agent does not answer" },
	{ "AgentError", "later", "the guest agent refused" },
	{ "QemuError", "later", "QEMU refused (data.qemu)" },
	{ "QemuExited", "later", "QEMU ended (data.log-tail, code, signal)" },
	{ "MonitorBusy", "later", "another client holds QEMU's monitor" },
	{ "Corrupt", "never", "an image or record is damaged (data.where)" },
	{ "StaleState", "never", "a disk is not as it was when the memory was saved (data.disks: disk, file, how, detail, part)" },
	{ "Incompatible", "never", "QEMU, machine or CPU do not fit the image" },
	{ "NotOwner", "never", "the VM belongs to another host now" },
	{ "Draining", "later", "the host is being drained" },
	{ "DrainIncomplete", "later", "some VMs still run" },
	{ "HookFailed", "later", "a hook failed or was late" },
	{ "PermissionDenied", "never", "the connection's role does not allow it (data.role)" },
	{ "IOError", "later", "the operating system refused (data.errno)" },
	{ "RollbackFailed", "never", "something could not be undone; a person is needed" },
	{ .name = NULL },
};
