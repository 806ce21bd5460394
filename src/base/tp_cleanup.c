/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tp_cleanup.c - Scope cleanup: the part that is more than one line */
#include "tp_cleanup.h"

#include <errno.h>
#include <unistd.h>

void tp_close(int *fd)
{
	int saved = errno;

	/* Not repeated on EINTR: Linux has released the number then already. */
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
	errno = saved;
}
