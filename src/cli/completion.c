/* Completion scripts for shells, from the tables that help and parsing are made from.
 *
 * bash and zsh get one function each that finds out which command the words name, and then offers its parts, its flags,
 * or the values of the flag before the cursor. fish has a line for each thing it can offer, with the condition under
 * which it does. */
#include "cli/cli.h"

#include <string.h>

enum { DESCRIPTION = 70 };

static bool is_end(const tt__flag *flag) { return !flag->name && !flag->what; }

/* Print text between single quotes; `escape` replaces one inside. Cut after a few words. */
static void put_quoted(FILE *out, const char *text, const char *escape) {
    size_t n = strlen(text);
    if (n > DESCRIPTION)
        for (n = DESCRIPTION; n && text[n] != ' ';)
            n--;
    fputc('\'', out);
    for (size_t i = 0; i < n; i++)
        if (text[i] == '\'')
            fputs(escape, out);
        else
            fputc(text[i], out);
    fputc('\'', out);
}

/* Call `visit` for the command and all below it. */
static void for_each_command(const tt__command *command, void (*visit)(const tt__command *, FILE *), FILE *out) {
    visit(command, out);
    for (const tt__command *const *part = command->parts ? command->parts() : NULL; part && *part; part++)
        for_each_command(*part, visit, out);
}

/* ---- bash and zsh, which parse this alike */

/* "tutti run" or "tutti": what the script calls the command. */
static void put_path(const tt__command *command, FILE *out) {
    fprintf(out, "tutti%s%s", *command->name ? " " : "", command->name);
}

/* Print the word that selects a subcommand. */
static void put_step(const tt__command *command, FILE *out) {
    if (!*command->name)
        return;
    fputs("        '", out);
    size_t parent = (size_t)(tt__cli_last_word(command->name) - command->name);
    fprintf(out, "tutti%s%.*s", parent ? " " : "", parent ? (int)parent - 1 : 0, command->name);
    fprintf(out, ":%s') command_path='", tt__cli_last_word(command->name));
    put_path(command, out);
    fputs("' ;;\n", out);
}

/* 'tutti run:--trace' | 'tutti run:-t' */
static void put_flag_pattern(const tt__command *command, const tt__flag *flag, FILE *out) {
    fputs("        '", out);
    put_path(command, out);
    fprintf(out, ":--%s'", flag->name);
    if (flag->letter) {
        fputs(" | '", out);
        put_path(command, out);
        fprintf(out, ":-%c'", flag->letter);
    }
}

/* Print the flags whose value is the next word. */
static void put_valued(const tt__command *command, FILE *out) {
    for (const tt__flag *f = command->flags; f && !is_end(f); f++)
        if (f->name && f->value) {
            put_flag_pattern(command, f, out);
            fputs(") value_of=$word ;;\n", out);
        }
}

static void put_values(const tt__command *command, FILE *out) {
    for (const tt__flag *f = command->flags; f && !is_end(f); f++)
        if (f->name && f->value && f->offer) {
            put_flag_pattern(command, f, out);
            fprintf(out, ") offers='%s' ;;\n", f->offer);
        }
}

/* Print the words that can stand where no value does: parts, arguments and flags. */
static void put_offers(const tt__command *command, FILE *out) {
    const tt__command *const *parts = command->parts ? command->parts() : NULL;
    fputs("        '", out);
    put_path(command, out);
    fputs("') flags='--help", out);
    for (const tt__flag *f = command->flags; f && !is_end(f); f++)
        if (f->name && f->what)
            fprintf(out, " --%s", f->name);
    fprintf(out, "' offers='%s", !parts && command->offer ? command->offer : "");
    for (int i = 0; parts && parts[i]; i++)
        fprintf(out, "%s%s", i ? " " : "", tt__cli_last_word(parts[i]->name));
    fputs("' ;;\n", out);
}

static void put_runs_program(const tt__command *command, FILE *out) {
    if (!command->runs_program)
        return;
    fputs("        '", out);
    put_path(command, out);
    fputs(":'*) program=1; break ;;\n", out);
}

/* Print the function that gets from the words before the cursor's ($typed) to those that can stand at the cursor:
 * $flags and $offers. */
static void put_function(FILE *out, const tt__command *root) {
    fputs("_tutti_offers() {\n"
          "    local word value_of= program= command_path=tutti\n"
          "    flags= offers=\n"
          "    for word in \"${typed[@]}\"; do\n"
          "        if [[ -n $value_of ]]; then\n"
          "            value_of=\n"
          "            continue\n"
          "        fi\n"
          "        case \"$command_path:$word\" in\n",
          out);
    for_each_command(root, put_valued, out);
    fputs("        *:-*) ;;\n", out);
    for_each_command(root, put_step, out);
    for_each_command(root, put_runs_program, out);
    fputs("        esac\n"
          "    done\n"
          "    if [[ -n $program ]]; then\n"
          "        offers='" TT__OFFER_FILES "'\n"
          "        return\n"
          "    fi\n"
          "    if [[ -n $value_of ]]; then\n"
          "        case \"$command_path:$value_of\" in\n",
          out);
    for_each_command(root, put_values, out);
    fputs("        esac\n"
          "        return\n"
          "    fi\n"
          "    case \"$command_path\" in\n",
          out);
    for_each_command(root, put_offers, out);
    fputs("    esac\n"
          "}\n\n",
          out);
}

static void print_bash(const tt__command *root, FILE *out) {
    fputs("# bash completion for tutti, made by: tutti completion bash\n\n", out);
    put_function(out, root);
    fputs("_tutti() {\n"
          "    local current=${COMP_WORDS[COMP_CWORD]} flags offers i typed=()\n"
          "    # bash takes --flag=value apart into three words.\n"
          "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
          "        [[ ${COMP_WORDS[i]} == = ]] || typed+=(\"${COMP_WORDS[i]}\")\n"
          "    done\n"
          "    [[ $current == = ]] && current=\n"
          "    _tutti_offers\n"
          "    case $offers in\n"
          "        '" TT__OFFER_FILES "') mapfile -t COMPREPLY < <(compgen -f -- \"$current\") ;;\n"
          "        '" TT__OFFER_FOLDERS "') mapfile -t COMPREPLY < <(compgen -d -- \"$current\") ;;\n"
          "        *) mapfile -t COMPREPLY < <(compgen -W \"$offers\" -- \"$current\") ;;\n"
          "    esac\n"
          "    if [[ $current == -* && -n $flags ]]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$current\")\n"
          "    fi\n"
          "}\n"
          "complete -o filenames -F _tutti tutti\n",
          out);
}

static void print_zsh(const tt__command *root, FILE *out) {
    fputs("#compdef tutti\n# zsh completion for tutti, made by: tutti completion zsh\n\n", out);
    put_function(out, root);
    fputs("_tutti() {\n"
          "    local current=${words[CURRENT]} flags offers\n"
          "    local -a typed=(\"${(@)words[2,CURRENT-1]}\")\n"
          "    if [[ $current == --*=* ]]; then\n"
          "        typed+=(\"${current%%=*}\")\n"
          "        compset -P '*='\n"
          "        current=${current#*=}\n"
          "    fi\n"
          "    _tutti_offers\n"
          "    case $offers in\n"
          "        '" TT__OFFER_FILES "') _files ;;\n"
          "        '" TT__OFFER_FOLDERS "') _files -/ ;;\n"
          "        *) compadd -- ${=offers} ;;\n"
          "    esac\n"
          "    [[ $current == -* ]] && compadd -- ${=flags}\n"
          "}\n"
          "if [[ $funcstack[1] == _tutti ]]; then\n"
          "    _tutti \"$@\"\n"
          "else\n"
          "    compdef _tutti tutti\n"
          "fi\n",
          out);
}

/* ---- fish */

/* Print the condition: the command's own words were typed. */
static void put_fish_condition(const tt__command *command, FILE *out) {
    fputs("complete -c tutti -n '", out);
    if (!*command->name) {
        fputs("__fish_use_subcommand", out);
    } else {
        const char *word = command->name;
        for (size_t n; *word; word += n + (word[n] == ' ')) {
            n = strcspn(word, " ");
            fprintf(out, "%s__fish_seen_subcommand_from %.*s", word == command->name ? "" : "; and ", (int)n, word);
        }
    }
    fputs("' ", out);
}

static void put_fish_offer(const char *offer, FILE *out) {
    if (!offer)
        fputs(" -x", out);
    else if (!strcmp(offer, TT__OFFER_FILES))
        fputs(" -r -F", out);
    else if (!strcmp(offer, TT__OFFER_FOLDERS))
        fputs(" -x -a '(__fish_complete_directories)'", out);
    else
        fprintf(out, " -x -a '%s'", offer);
}

static void put_fish(const tt__command *command, FILE *out) {
    const tt__command *const *parts = command->parts ? command->parts() : NULL;
    for (int i = 0; parts && parts[i]; i++) {
        put_fish_condition(command, out);
        fprintf(out, "-f -a %s -d ", tt__cli_last_word(parts[i]->name));
        put_quoted(out, parts[i]->what, "\\'");
        fputc('\n', out);
    }
    for (const tt__flag *f = command->flags; f && !is_end(f); f++) {
        if (!f->name || !f->what)
            continue;
        put_fish_condition(command, out);
        fprintf(out, "-l %s", f->name);
        if (f->letter)
            fprintf(out, " -s %c", f->letter);
        if (f->value)
            put_fish_offer(f->offer, out);
        fputs(" -d ", out);
        put_quoted(out, f->what, "\\'");
        fputc('\n', out);
    }
    if (!parts && command->offer && !strchr(command->offer, '<')) {
        put_fish_condition(command, out);
        fprintf(out, "-f -a '%s'\n", command->offer);
    }
}

static void print_fish(const tt__command *root, FILE *out) {
    fputs("# fish completion for tutti, made by: tutti completion fish\n\n"
          "complete -c tutti -l help -s h -d 'this text'\n",
          out);
    for_each_command(root, put_fish, out);
}

bool tt__completion_print(const tt__command *root, const char *shell, FILE *out) {
    static const struct {
        const char *name;
        void (*print)(const tt__command *, FILE *);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (!strcmp(shell, shells[i].name)) {
            shells[i].print(root, out);
            return true;
        }
    return false;
}
