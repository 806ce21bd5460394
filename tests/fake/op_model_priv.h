/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* op_model_priv.h - Between op_model.c and op_model_ports.c */
#ifndef OP_MODEL_PRIV_H
#define OP_MODEL_PRIV_H

#include "fake/op_model.h"

enum op_model_event_type {
	EVENT_CALL, EVENT_ANSWER, EVENT_QEMU, EVENT_MOVER, EVENT_SYNC, EVENT_CANCEL, EVENT_DEADLINE,
};

struct op_model_event {
	struct op_model_event *next;
	double at;
	uint64_t seq;
	enum op_model_event_type type;
	struct op_event ev;
	char name[64];
	json_t *data, *error_data;
	struct tp_error err;
	struct op_job *job;
	bool silent;		/* is not told to the operation */
	bool ran;		/* the job has been run */
	bool done;		/* the session has ended */
	void (*fn)(struct op_model_world *w, unsigned gen);
	unsigned gen;		/* CALL: generation; SYNC: records that are durable then */
};

extern const struct op_ports op_model_ports;
struct op_model_world *op_model_current(void);
struct op_model_event *op_model_add(struct op_model_world *w, double delay,
				    enum op_model_event_type type);
void op_model_check_log(struct op_model_world *w);

#endif
