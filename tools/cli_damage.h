/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* cli_damage.h - Damages of an image, for people */
#ifndef CLI_DAMAGE_H
#define CLI_DAMAGE_H

#include <jansson.h>

/*
 * A table of an error's data.damage (borrowed; storage/image_damage.h has its members), how many more
 * there are, and what can be done. image: as torpor image cat would name it. Nothing without damages.
 */
void cli_say_damage(const json_t *error, const char *image);

#endif
