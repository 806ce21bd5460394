# SPDX-License-Identifier: LGPL-2.1-or-later
# fish completion for torpor: the program itself knows its verbs
torpor completion fish | source
