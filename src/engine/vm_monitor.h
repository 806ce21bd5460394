/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* vm_monitor.h - QEMU's monitor and agent of one VM: connecting, status, events */
#ifndef VM_MONITOR_H
#define VM_MONITOR_H

#include "engine/vm_runtime.h"

void vm_monitor_init(struct vm_qemu *q);
bool vm_monitor_connect(struct vm_qemu *q, struct tp_error *err);
void vm_monitor_retry(struct vm_qemu *q);	/* later, again and again */
void vm_monitor_ready(struct vm_qemu *q);	/* answers who waits for "connect" */
void vm_monitor_close(struct vm_qemu *q);	/* outstanding replies are answered with an error */

#endif
