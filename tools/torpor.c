/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * torpor.c - The command-line client
 *
 * Finds the verb in the table (cli_verbs.c), parses by its row (cli_args.c) and runs it (cmd_*.c). All
 * that is asked of torpord goes over one connection (cli_conn.c).
 */
#include <signal.h>

#include "cli_conn.h"
#include "cli_verb.h"

int main(int argc, char *argv[])
{
	static struct cli cli;
	int status;

	/* A pipe that nobody reads is an error of the write, not the end of us in the middle of a roll-back. */
	signal(SIGPIPE, SIG_IGN);
	status = cli_parse(&cli, argc, argv);
	if (status != -1)
		return status;
	status = cli.verb->run(&cli);
	cli_conn_free(cli.conn);
	cli_free(&cli);
	return status;
}
