/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* torpord_systemd.h - Readiness, watchdog and socket activation; nothing without libsystemd */
#ifndef TORPORD_SYSTEMD_H
#define TORPORD_SYSTEMD_H

#include <ev.h>
#include <stddef.h>

#define SYSTEMD_SOCKETS_MAX 8

/* Listening UNIX stream sockets that systemd handed over, non-blocking and CLOEXEC; their number. */
size_t systemd_sockets(int fds[SYSTEMD_SOCKETS_MAX]);
void systemd_ready(void);
void systemd_reloading(void);
void systemd_stopping(void);
/* Feeds the watchdog of the service, if it has one, from this loop. */
void systemd_watchdog_start(struct ev_loop *loop);
void systemd_watchdog_stop(struct ev_loop *loop);

#endif
