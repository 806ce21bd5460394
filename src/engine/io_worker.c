/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * io_worker.c - One thread for file work that may stall
 *
 * Theory of operation. A job is in one of three places: the queue (todo), the thread's hands
 * (running), or the list of completions (finished), which the loop empties when the ev_async fires.
 * Everything is guarded by one mutex that is never held while foreign code runs. The loop is kept
 * alive by jobs, not by the idle worker. Where the thread hangs in a system call when the worker is
 * freed, the worker is marked abandoned: the thread then touches neither loop nor completions, and
 * frees the worker itself should it ever come back.
 */
#include "engine/io_worker.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/tp_cleanup.h"
#include "base/tp_time.h"

#define NAME_SIZE 80
#define THREAD_NAME_SIZE 16	/* the kernel's limit */

struct job {
	struct job *next;
	bool (*run)(void *arg, struct tp_error *err);
	void (*done)(void *arg, const struct tp_error *err);
	void *arg;
	bool ok;
	struct tp_error err;
};

struct list {
	struct job *head, **tail;
};

struct io_worker {
	struct ev_loop *loop;
	ev_async wake;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work, idle;
	struct list todo, finished;
	bool running, abandoned, over;
	double since;		/* monotonic: of the job that runs */
	bool stop;		/* set by the loop's side only */
	size_t pending;		/* loop's side only */
	char name[NAME_SIZE];
};

static void list_init(struct list *l)
{
	l->head = NULL;
	l->tail = &l->head;
}

static void list_add(struct list *l, struct job *job)
{
	job->next = NULL;
	*l->tail = job;
	l->tail = &job->next;
}

static struct job *list_take_all(struct list *l)
{
	struct job *head = l->head;

	list_init(l);
	return head;
}

static struct job *list_take(struct list *l)
{
	struct job *job = l->head;

	if (!job)
		return NULL;
	l->head = job->next;
	if (!l->head)
		l->tail = &l->head;
	return job;
}

static void destroy(struct io_worker *w)
{
	pthread_cond_destroy(&w->work);
	pthread_cond_destroy(&w->idle);
	pthread_mutex_destroy(&w->lock);
	free(w);
}

/* Called with the lock held; returns with it held. */
static void run_one(struct io_worker *w, struct job *job)
{
	w->running = true;
	w->since = tp_now_mono();
	pthread_mutex_unlock(&w->lock);
	job->ok = job->run(job->arg, &job->err);
	if (!job->ok && job->err.code == TP_OK)
		tp_fail(&job->err, TP_ESYS, "worker %s: a job failed without a reason", w->name);
	pthread_mutex_lock(&w->lock);
	w->running = false;
	list_add(&w->finished, job);
	if (!w->abandoned)
		ev_async_send(w->loop, &w->wake);
	pthread_cond_broadcast(&w->idle);
}

static void *thread_main(void *arg)
{
	struct io_worker *w = arg;
	struct job *job, *next;
	bool abandoned;

	pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		job = list_take(&w->todo);
		if (job)
			run_one(w, job);
		else
			pthread_cond_wait(&w->work, &w->lock);
	}
	abandoned = w->abandoned;
	w->over = true;
	pthread_cond_broadcast(&w->idle);
	pthread_mutex_unlock(&w->lock);
	if (abandoned) {
		/* Their arguments belong to nobody any more: given up. */
		for (job = w->finished.head; job; job = next) {
			next = job->next;
			free(job);
		}
		destroy(w);
	}
	return NULL;
}

/* Calls the completions of a list, in order; none of them may free the worker. */
static void complete(struct io_worker *w, struct job *job, bool cancelled)
{
	struct job *next;

	for (; job; job = next) {
		next = job->next;
		if (cancelled)
			tp_fail(&job->err, TP_ECANCELLED, "worker %s was stopped", w->name);
		w->pending--;
		ev_unref(w->loop);
		if (job->done)
			job->done(job->arg, job->ok && !cancelled ? NULL : &job->err);
		free(job);
	}
}

static void on_wake(struct ev_loop *loop, ev_async *watcher, int revents)
{
	struct io_worker *w = watcher->data;
	struct job *job;

	(void)loop;
	(void)revents;
	pthread_mutex_lock(&w->lock);
	job = list_take_all(&w->finished);
	pthread_mutex_unlock(&w->lock);
	complete(w, job, false);
}

static bool start_thread(struct io_worker *w, struct tp_error *err)
{
	char name[THREAD_NAME_SIZE];
	sigset_t all, old;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	rc = pthread_create(&w->thread, NULL, thread_main, w);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc != 0)
		return tp_fail_sys(err, rc, "start worker %s", w->name);
	snprintf(name, sizeof(name), "io-%.*s", (int)sizeof(name) - 4, w->name);
	pthread_setname_np(w->thread, name);
	return true;
}

struct io_worker *io_worker_new(struct ev_loop *loop, const char *name, struct tp_error *err)
{
	struct io_worker *w = calloc(1, sizeof(*w));

	if (!w) {
		tp_fail_nomem(err);
		return NULL;
	}
	w->loop = loop;
	snprintf(w->name, sizeof(w->name), "%s", name);
	list_init(&w->todo);
	list_init(&w->finished);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->work, NULL);
	pthread_cond_init(&w->idle, NULL);
	ev_async_init(&w->wake, on_wake);
	w->wake.data = w;
	ev_async_start(loop, &w->wake);
	ev_unref(loop);
	if (!start_thread(w, err)) {
		ev_ref(loop);
		ev_async_stop(loop, &w->wake);
		destroy(w);
		return NULL;
	}
	return w;
}

static struct timespec limit_from_now(double limit)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)limit;
	until.tv_nsec += (long)((limit - (double)(time_t)limit) * 1e9);
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	return until;
}

/* Waits until the thread has ended, or hangs. Called with the lock held. */
static void wait_over(struct io_worker *w, double limit)
{
	struct timespec until = limit_from_now(limit);
	int rc = 0;

	while (!w->over && rc == 0)
		rc = pthread_cond_clockwait(&w->idle, &w->lock, CLOCK_MONOTONIC, &until);
}

bool io_worker_wait(struct io_worker *w, double limit)
{
	struct timespec until = limit_from_now(limit);
	struct job *finished;
	int rc = 0;

	pthread_mutex_lock(&w->lock);
	while ((w->running || w->todo.head) && rc == 0)
		rc = pthread_cond_clockwait(&w->idle, &w->lock, CLOCK_MONOTONIC, &until);
	finished = list_take_all(&w->finished);
	pthread_mutex_unlock(&w->lock);
	complete(w, finished, false);
	return rc == 0;
}

/* With the lock held; afterwards the worker belongs to its thread. */
static void abandon(struct io_worker *w)
{
	struct ev_loop *loop = w->loop;

	ev_unref(loop);		/* of the job that hangs */
	ev_ref(loop);
	ev_async_stop(loop, &w->wake);
	w->abandoned = true;
	pthread_detach(w->thread);
	pthread_mutex_unlock(&w->lock);
}

bool io_worker_free(struct io_worker *w, double limit)
{
	struct job *dropped, *finished;

	if (!w)
		return true;
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	dropped = list_take_all(&w->todo);
	pthread_cond_broadcast(&w->work);
	wait_over(w, limit);
	finished = list_take_all(&w->finished);
	pthread_mutex_unlock(&w->lock);
	complete(w, finished, false);
	complete(w, dropped, true);

	pthread_mutex_lock(&w->lock);
	while (!w->over && !w->running)
		pthread_cond_wait(&w->idle, &w->lock);	/* it is on its way out */
	if (!w->over) {
		abandon(w);
		return false;
	}
	finished = list_take_all(&w->finished);
	pthread_mutex_unlock(&w->lock);
	complete(w, finished, false);
	ev_ref(w->loop);
	ev_async_stop(w->loop, &w->wake);
	pthread_join(w->thread, NULL);
	destroy(w);
	return true;
}

bool io_worker_submit(struct io_worker *w, bool (*run)(void *arg, struct tp_error *err),
		      void (*done)(void *arg, const struct tp_error *err), void *arg,
		      struct tp_error *err)
{
	struct job *job;

	if (w->stop)
		return tp_fail(err, TP_ECANCELLED, "worker %s is being stopped", w->name);
	if (w->pending >= IO_WORKER_QUEUE)
		return tp_fail(err, TP_ELIMIT, "worker %s: %u jobs wait already", w->name,
			       IO_WORKER_QUEUE);
	job = calloc(1, sizeof(*job));
	if (!job)
		return tp_fail_nomem(err);
	job->run = run;
	job->done = done;
	job->arg = arg;
	w->pending++;
	ev_ref(w->loop);
	pthread_mutex_lock(&w->lock);
	list_add(&w->todo, job);
	pthread_cond_signal(&w->work);
	pthread_mutex_unlock(&w->lock);
	return true;
}

size_t io_worker_pending(const struct io_worker *w)
{
	return w->pending;
}

double io_worker_busy(struct io_worker *w)
{
	double busy;

	pthread_mutex_lock(&w->lock);
	busy = w->running ? tp_now_mono() - w->since : 0;
	pthread_mutex_unlock(&w->lock);
	return busy;
}

const char *io_worker_name(const struct io_worker *w)
{
	return w->name;
}
