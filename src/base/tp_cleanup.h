/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* tp_cleanup.h - Scope cleanup for memory, descriptors and JSON; visible hand-over */
#ifndef TP_CLEANUP_H
#define TP_CLEANUP_H

#include <jansson.h>
#include <stdlib.h>

#define TP_CLEANUP(fn) __attribute__((cleanup(fn)))

static inline void tp_cleanup_free(void *p)
{
	free(*(void **)p);
}

/* Closes *fd if it is not negative and sets it to -1. Keeps errno. */
void tp_close(int *fd);

static inline void tp_cleanup_json(json_t **p)
{
	json_decref(*p);
}

#define tp_autofree TP_CLEANUP(tp_cleanup_free)
#define tp_autoclose TP_CLEANUP(tp_close)
#define tp_autojson TP_CLEANUP(tp_cleanup_json)

/* Hands a pointer or a descriptor over: the variable is emptied. */
#define TP_STEAL(p) __extension__({ __typeof__(p) tp_stolen_ = (p); (p) = NULL; tp_stolen_; })
#define TP_STEAL_FD(fd) __extension__({ int tp_stolen_ = (fd); (fd) = -1; tp_stolen_; })

#define TP_N(array) (sizeof(array) / sizeof((array)[0]))

#endif
