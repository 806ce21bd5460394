# SPDX-License-Identifier: LGPL-2.1-or-later
# bash completion for torpor: the program itself knows its verbs
eval "$(torpor completion bash)"
