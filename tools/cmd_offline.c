/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_offline.c - image info|verify|cat FILE: to what needs no daemon */
#include <string.h>

#include "cli_verb.h"
#include "cmd_image.h"

int cmd_image_file(struct cli *cli)
{
	bool json = cli->format == CLI_F_JSON;

	if (strcmp(cli->verb->name, "info") == 0)
		return cmd_image_info(cli->operands[0], json);
	if (strcmp(cli->verb->name, "verify") == 0)
		return cmd_image_verify(cli->operands[0], json);
	return cmd_image_cat(cli->operands[0], cli_flag(cli, "salvage"));
}
