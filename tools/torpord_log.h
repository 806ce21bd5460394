/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* torpord_log.h - Log lines of daemon and library on stderr */
#ifndef TORPORD_LOG_H
#define TORPORD_LOG_H

#include <stdbool.h>

#include "base/tp_log.h"

/* json: one object a line; else text, with a time, or "<N>" where stderr is the journal's. */
void log_setup(enum tp_level level, bool json);

#endif
