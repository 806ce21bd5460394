/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* mover_view.h - What only the program that a launch becomes sees of the file system */
#ifndef MOVER_VIEW_H
#define MOVER_VIEW_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/tp_error.h"

/*
 * Gives this process, and what it becomes, a /dev/userfaultfd that is this user's alone. scratch: a
 * folder, covered for a moment, here only. Needs CAP_SYS_ADMIN, CAP_SYS_CHROOT, CAP_MKNOD and
 * CAP_CHOWN, and a single thread. After a failure the process sees what it saw before.
 */
bool mover_view_uffd(uid_t uid, const char *scratch, struct tp_error *err);

#endif
