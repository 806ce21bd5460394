/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* torpord_systemd.c - Readiness, watchdog and socket activation */
#include "torpord_systemd.h"

#ifdef TP_HAVE_SYSTEMD

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/tp_log.h"
#include "base/tp_sock.h"
#include "base/tp_time.h"

TP_LOG_SOURCE("torpord");

static struct ev_timer watchdog;

size_t systemd_sockets(int fds[SYSTEMD_SOCKETS_MAX])
{
	int count = sd_listen_fds(1);
	size_t n = 0;

	for (int fd = SD_LISTEN_FDS_START; fd < SD_LISTEN_FDS_START + count; fd++) {
		if (n < SYSTEMD_SOCKETS_MAX && sd_is_socket_unix(fd, SOCK_STREAM, 1, NULL, 0) > 0 &&
		    tp_set_nonblock(fd, true)) {
			fds[n++] = fd;
		} else {
			tp_warn("descriptor %d of the service manager is no listening UNIX socket, closed", fd);
			close(fd);
		}
	}
	return n;
}

void systemd_ready(void)
{
	sd_notify(0, "READY=1");
}

void systemd_reloading(void)
{
	sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, (uint64_t)(tp_now_mono() * 1e6));
}

void systemd_stopping(void)
{
	sd_notify(0, "STOPPING=1");
}

static void feed(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	(void)loop, (void)w, (void)revents;
	sd_notify(0, "WATCHDOG=1");
}

void systemd_watchdog_start(struct ev_loop *loop)
{
	uint64_t usec;

	if (sd_watchdog_enabled(0, &usec) <= 0)
		return;
	ev_timer_init(&watchdog, feed, 0, (double)usec / 2e6);
	ev_timer_start(loop, &watchdog);
}

void systemd_watchdog_stop(struct ev_loop *loop)
{
	ev_timer_stop(loop, &watchdog);
}

#else

size_t systemd_sockets(int fds[SYSTEMD_SOCKETS_MAX])
{
	(void)fds;
	return 0;
}

void systemd_ready(void)
{
}

void systemd_reloading(void)
{
}

void systemd_stopping(void)
{
}

void systemd_watchdog_start(struct ev_loop *loop)
{
	(void)loop;
}

void systemd_watchdog_stop(struct ev_loop *loop)
{
	(void)loop;
}

#endif
