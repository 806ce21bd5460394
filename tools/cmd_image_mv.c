/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cmd_image_mv.c - torpor image mv: an image goes to another pool */
#include "base/tp_cleanup.h"
#include "base/tp_json.h"
#include "cli_follow.h"
#include "cmd_image.h"

int cmd_image_mv(struct cli *cli)
{
	tp_autojson json_t *arguments = NULL;
	struct cli_names id = { .names = cli->operands, .n = 1 };

	for (size_t i = 0; i < cli->noperands; i++)
		if (image_is_file(cli->operands[i]))
			return cli_usage(cli, "\"%.100s\" is a file; an image is moved by its id to a pool "
					 "by its name (torpor image ls, torpor pool ls)", cli->operands[i]);
	arguments = cli_arguments(cli, NULL);
	tp_json_set_str(arguments, "pool", cli->operands[1]);
	return cli_operate_images(cli, cli->verb->command, arguments, &id, false, NULL);
}
