/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * cmd_completion.c - Completion scripts, made from the table of verbs
 *
 * All three know the words of the table; names of VMs, operations and images are asked of torpord by
 * `torpor ls|ops|image ls -o name` at the time of completion.
 */
#include <stdio.h>
#include <string.h>

#include "base/tp_cleanup.h"
#include "cli_out.h"
#include "cli_verb.h"

static void print_words(const char *noun)
{
	const char *last = "";

	for (const struct cli_verb *v = cli_verbs; v->name; v++) {
		if (noun ? v->noun && strcmp(v->noun, noun) == 0 : !v->noun)
			printf(" %s", v->name);
		if (!noun && v->noun && strcmp(v->noun, last) != 0)
			printf(" %s", last = v->noun);
	}
}

static void print_option_word(const struct cli_option *o, void *arg)
{
	(void)arg;
	printf(" --%s", o->name);
	if (o->letter)
		printf(" -%c", o->letter);
}

/* A command that prints what operands may be; of files nothing: the shell knows them. */
static const char *operand_words(const struct cli_verb *v)
{
	switch (v->names) {
	case CLI_VM:
		return "torpor ls -o name 2>/dev/null";
	case CLI_OPERATION:
		return "torpor ops -o name 2>/dev/null";
	case CLI_IMAGE:
	case CLI_IMAGE_FILE:
		return "torpor image ls -o name 2>/dev/null";
	case CLI_POOL:
		return "torpor pool ls -o name 2>/dev/null";
	case CLI_SHELL:
		return "echo bash zsh fish";
	default:
		return NULL;
	}
}

/* --- bash, and zsh by its emulation --- */

/* A case of the verb's words: sets `options` and `operands`. */
static void bash_case(const struct cli_verb *v)
{
	const char *operands = operand_words(v);

	printf("\t\"%s%s%s\")\n\t\toptions=\"", v->noun ? v->noun : "", v->noun ? " " : "", v->name);
	cli_each_option(v, print_option_word, NULL);
	printf("\"\n");
	if (operands)
		printf("\t\t[[ $word == -* ]] || operands=$(%s)\n", operands);
	printf("\t\t;;\n");
}

static void bash_nouns(void)
{
	const char *last = "";

	for (const struct cli_verb *v = cli_verbs; v->name; v++) {
		if (!v->noun || strcmp(v->noun, last) == 0)
			continue;
		last = v->noun;
		printf("\t\"%s\" | \"%ss\")\n\t\toperands=\"", last, last);
		print_words(last);
		printf("\"\n\t\t;;\n");
	}
}

static void print_bash(void)
{
	puts("# bash completion for torpor, printed by `torpor completion bash`\n"
	     "_torpor()\n{\n"
	     "\tlocal word=${COMP_WORDS[COMP_CWORD]} verb= options= operands= w i\n"
	     "\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	     "\t\tw=${COMP_WORDS[i]}\n"
	     "\t\tcase $w in -*) continue ;; esac\n"
	     "\t\tcase \"$verb:$w\" in\n"
	     "\t\t:*) verb=$w ;;");
	for (const struct cli_verb *v = cli_verbs; v->name; v++)
		if (v->noun)
			printf("\t\t%s:%s | %ss:%s) verb=\"%s %s\" ;;\n", v->noun, v->name, v->noun, v->name, v->noun,
			       v->name);
	printf("\t\tesac\n\tdone\n\tcase \"$verb\" in\n\t'')\n\t\toptions=\"--socket --json --help --version\"\n"
	       "\t\toperands=\"");
	print_words(NULL);
	puts("\"\n\t\t;;");
	for (const struct cli_verb *v = cli_verbs; v->name; v++)
		bash_case(v);
	bash_nouns();
	puts("\tesac\n"
	     "\tif [[ $word == -* ]]; then\n\t\toperands=$options\n\tfi\n"
	     "\tmapfile -t COMPREPLY < <(compgen -W \"$operands\" -- \"$word\")\n"
	     "}\n"
	     "complete -o default -F _torpor torpor");
}

static void print_zsh(void)
{
	puts("#compdef torpor\n"
	     "# zsh completion for torpor, printed by `torpor completion zsh`\n"
	     "autoload -U +X bashcompinit && bashcompinit");
	/* bashcompinit gives complete and compgen; mapfile is bash's own. */
	puts("mapfile() { COMPREPLY=(\"${(@f)$(cat)}\"); }");
	print_bash();
}

/* --- fish --- */

static void fish_option(const struct cli_option *o, void *arg)
{
	const struct cli_verb *v = arg;

	printf("complete -c torpor -n '__torpor_verb %s%s%s' -l %s", v->noun ? v->noun : "", v->noun ? " " : "", v->name,
	       o->name);
	if (o->letter)
		printf(" -s %c", o->letter);
	if (o->kind != CLI_FLAG)
		printf(" -r");
	if (o->kind == CLI_CHOICE || o->kind == CLI_CHOICES) {
		printf(" -a '");
		for (const char *p = o->value; *p; p++)
			putchar(*p == '|' ? ' ' : *p);
		putchar('\'');
	}
	puts("");
}

static void fish_verb(const struct cli_verb *v)
{
	const char *operands = operand_words(v);

	printf("complete -c torpor -f -n '__torpor_verb%s%s' -a %s -d '%s'\n", v->noun ? " " : "",
	       v->noun ? v->noun : "", v->name, v->summary);
	cli_each_option(v, fish_option, (void *)v);
	if (operands)
		printf("complete -c torpor %s -n '__torpor_verb %s%s%s' -a '(%s)'\n",
		       v->names == CLI_IMAGE_FILE ? "-F" : "-f", v->noun ? v->noun : "", v->noun ? " " : "", v->name,
		       operands);
}

static void print_fish(void)
{
	const char *last = "";

	puts("# fish completion for torpor, printed by `torpor completion fish`\n"
	     "function __torpor_verb\n"
	     "\tset -l words (commandline -opc | string match -v -- '-*')[2..-1]\n"
	     "\tset -l n (count $argv)\n"
	     "\tif test $n -eq 0\n\t\ttest (count $words) -eq 0\n\t\treturn\n\tend\n"
	     "\ttest (count $words) -ge $n; or return 1\n"
	     "\ttest \"$words[1..$n]\" = \"$argv\"\n"
	     "end");
	for (const struct cli_verb *v = cli_verbs; v->name; v++) {
		if (v->noun && strcmp(v->noun, last) != 0)
			printf("complete -c torpor -f -n '__torpor_verb' -a %s\n", last = v->noun);
		fish_verb(v);
	}
}

int cmd_completion(struct cli *cli)
{
	static const struct {
		const char *shell;
		void (*print)(void);
	} shells[] = { { "bash", print_bash }, { "zsh", print_zsh }, { "fish", print_fish } };

	for (size_t i = 0; i < TP_N(shells); i++)
		if (strcmp(shells[i].shell, cli->operands[0]) == 0) {
			shells[i].print();
			return cli_flush();
		}
	return cli_usage(cli, "no completion for \"%.40s\": bash, zsh or fish", cli->operands[0]);
}
