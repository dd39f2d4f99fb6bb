/* Completion scripts for shells, from the tables that help and parsing are made from.
 *
 * bash and zsh get one function each that finds out which command the words name, and then offers its parts, its flags,
 * or the values of the flag before the cursor. fish has a line for each thing it can offer, with the condition under
 * which it does. */
#include "cli/cli.h"

#include <string.h>

enum { DESCRIPTION = 70 };

static bool is_end(const tt__flag *flag) { return !flag->name && !flag->what; }

/* Print text between single quotes, cut after a few words. */
static void put_quoted(const char *text) {
    size_t n = strlen(text);
    if (n > DESCRIPTION)
        for (n = DESCRIPTION; n && text[n] != ' ';)
            n--;
    putchar('\'');
    for (size_t i = 0; i < n; i++)
        if (text[i] == '\'')
            fputs("\\'", stdout);
        else
            putchar(text[i]);
    putchar('\'');
}

/* Call `visit` for the command and all below it. */
static void for_each_command(const tt__command *command, void (*visit)(const tt__command *)) {
    visit(command);
    for (const tt__command *const *part = command->parts ? command->parts() : NULL; part && *part; part++)
        for_each_command(*part, visit);
}

/* ---- bash and zsh, which parse this alike */

/* Print the command's name in the script: "tutti run" or "tutti". */
static void put_path(const tt__command *command) { printf("tutti%s%s", *command->name ? " " : "", command->name); }

/* Print the word that selects a subcommand. */
static void put_step(const tt__command *command) {
    if (!*command->name)
        return;
    fputs("        '", stdout);
    size_t parent = (size_t)(tt__cli_last_word(command->name) - command->name);
    printf("tutti%s%.*s", parent ? " " : "", parent ? (int)parent - 1 : 0, command->name);
    printf(":%s') command_path='", tt__cli_last_word(command->name));
    put_path(command);
    fputs("' ;;\n", stdout);
}

/* 'tutti run:--trace' | 'tutti run:-t' */
static void put_flag_pattern(const tt__command *command, const tt__flag *flag) {
    fputs("        '", stdout);
    put_path(command);
    printf(":--%s'", flag->name);
    if (flag->letter) {
        fputs(" | '", stdout);
        put_path(command);
        printf(":-%c'", flag->letter);
    }
}

/* Print the flags whose value is the next word. */
static void put_valued(const tt__command *command) {
    for (const tt__flag *f = command->flags; f && !is_end(f); f++)
        if (f->name && f->value) {
            put_flag_pattern(command, f);
            fputs(") value_of=$word ;;\n", stdout);
        }
}

static void put_values(const tt__command *command) {
    for (const tt__flag *f = command->flags; f && !is_end(f); f++)
        if (f->name && f->value && f->offer) {
            put_flag_pattern(command, f);
            printf(") offers='%s' ;;\n", f->offer);
        }
}

/* Print the words that can stand where no value does: parts, arguments and flags. */
static void put_offers(const tt__command *command) {
    const tt__command *const *parts = command->parts ? command->parts() : NULL;
    fputs("        '", stdout);
    put_path(command);
    fputs("') flags='--help", stdout);
    for (const tt__flag *f = command->flags; f && !is_end(f); f++)
        if (f->name && f->what)
            printf(" --%s", f->name);
    printf("' offers='%s", !parts && command->offer ? command->offer : "");
    for (int i = 0; parts && parts[i]; i++)
        printf("%s%s", i ? " " : "", tt__cli_last_word(parts[i]->name));
    fputs("' ;;\n", stdout);
}

static void put_runs_program(const tt__command *command) {
    if (!command->runs_program)
        return;
    fputs("        '", stdout);
    put_path(command);
    fputs(":'*) program=1; break ;;\n", stdout);
}

/* Print the function that finds, from the words before the cursor ($typed), those that can stand at the cursor: $flags
 * and $offers. */
static void put_function(const tt__command *root) {
    fputs("_tutti_offers() {\n"
          "    local word value_of= program= command_path=tutti\n"
          "    flags= offers=\n"
          "    for word in \"${typed[@]}\"; do\n"
          "        if [[ -n $value_of ]]; then\n"
          "            value_of=\n"
          "            continue\n"
          "        fi\n"
          "        case \"$command_path:$word\" in\n",
          stdout);
    for_each_command(root, put_valued);
    fputs("        *:-*) ;;\n", stdout);
    for_each_command(root, put_step);
    for_each_command(root, put_runs_program);
    fputs("        esac\n"
          "    done\n"
          "    if [[ -n $program ]]; then\n"
          "        offers='" TT__OFFER_FILES "'\n"
          "        return\n"
          "    fi\n"
          "    if [[ -n $value_of ]]; then\n"
          "        case \"$command_path:$value_of\" in\n",
          stdout);
    for_each_command(root, put_values);
    fputs("        esac\n"
          "        return\n"
          "    fi\n"
          "    case \"$command_path\" in\n",
          stdout);
    for_each_command(root, put_offers);
    fputs("    esac\n"
          "}\n\n",
          stdout);
}

static void print_bash(const tt__command *root) {
    fputs("# bash completion for tutti, made by: tutti completion bash\n\n", stdout);
    put_function(root);
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
          stdout);
}

static void print_zsh(const tt__command *root) {
    fputs("#compdef tutti\n# zsh completion for tutti, made by: tutti completion zsh\n\n", stdout);
    put_function(root);
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
          stdout);
}

/* ---- fish */

/* Print the condition: the command's own words were typed. */
static void put_fish_condition(const tt__command *command) {
    fputs("complete -c tutti -n '", stdout);
    if (!*command->name) {
        fputs("__fish_use_subcommand", stdout);
    } else {
        const char *word = command->name;
        for (size_t n; *word; word += n + (word[n] == ' ')) {
            n = strcspn(word, " ");
            printf("%s__fish_seen_subcommand_from %.*s", word == command->name ? "" : "; and ", (int)n, word);
        }
    }
    fputs("' ", stdout);
}

static void put_fish_offer(const char *offer) {
    if (!offer)
        fputs(" -x", stdout);
    else if (!strcmp(offer, TT__OFFER_FILES))
        fputs(" -r -F", stdout);
    else if (!strcmp(offer, TT__OFFER_FOLDERS))
        fputs(" -x -a '(__fish_complete_directories)'", stdout);
    else
        printf(" -x -a '%s'", offer);
}

static void put_fish(const tt__command *command) {
    const tt__command *const *parts = command->parts ? command->parts() : NULL;
    for (int i = 0; parts && parts[i]; i++) {
        put_fish_condition(command);
        printf("-f -a %s -d ", tt__cli_last_word(parts[i]->name));
        put_quoted(parts[i]->what);
        putchar('\n');
    }
    for (const tt__flag *f = command->flags; f && !is_end(f); f++) {
        if (!f->name || !f->what)
            continue;
        put_fish_condition(command);
        printf("-l %s", f->name);
        if (f->letter)
            printf(" -s %c", f->letter);
        if (f->value)
            put_fish_offer(f->offer);
        fputs(" -d ", stdout);
        put_quoted(f->what);
        putchar('\n');
    }
    if (!parts && command->offer && !strchr(command->offer, '<')) {
        put_fish_condition(command);
        printf("-f -a '%s'\n", command->offer);
    }
}

static void print_fish(const tt__command *root) {
    fputs("# fish completion for tutti, made by: tutti completion fish\n\n"
          "complete -c tutti -l help -s h -d 'this text'\n",
          stdout);
    for_each_command(root, put_fish);
}

bool tt__completion_print(const tt__command *root, const char *shell) {
    static const struct {
        const char *name;
        void (*print)(const tt__command *);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (!strcmp(shell, shells[i].name)) {
            shells[i].print(root);
            return true;
        }
    return false;
}
