/* tutti: one command, its subcommands in a table. */
#include "cli/cli.h"

#include "base/machine/host_name.h"
#include "launch/adapters/remote_clock.h"
#include "launch/adapters/remote_node.h"
#include "launch/local/children.h"

#include <tutti/base.h>

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>
#include <unistd.h>

static const tt__command *const *main_parts(void);

static const tt__flag main_flags[] = {TT__SWITCH("version", 'V', "print the version", .letter = 'V'), {0}};

static const tt__command main_command = {
    .name = "",
    .usage = "COMMAND [ARGUMENTS]",
    .text = "Distributed data-parallel training in C.",
    .flags = main_flags,
    .notes = "'tutti COMMAND --help' explains each.",
    .parts = main_parts,
};

/* ---- tutti completion */

static int print_completion(int argc, char **argv);

static const tt__command completion_command = {
    .name = "completion",
    .what = "print what a shell needs to complete all this",
    .usage = "bash|zsh|fish",
    .text =
        "Print a script by which the shell completes commands, flags and their values. Packages install it; by hand:\n"
        "\n"
        "  bash: source <(tutti completion bash)                    in ~/.bashrc\n"
        "  zsh:  tutti completion zsh >\"${fpath[1]}/_tutti\"         before compinit\n"
        "  fish: tutti completion fish >~/.config/fish/completions/tutti.fish",
    .offer = "bash zsh fish",
    .run = print_completion,
};

static int print_completion(int argc, char **argv) {
    char *shell = tt__cli_take_word(&completion_command, &argc, argv);
    for (int id; (id = tt__cli_next_flag(&completion_command, argc, argv, NULL)) != -1;)
        return id == 'h' ? TT__EXIT_OK : TT__EXIT_USAGE;
    if (shell && tt__completion_print(&main_command, shell))
        return TT__EXIT_OK;
    return tt__cli_usage_error("completion", "expected bash, zsh or fish%s%s%s", shell ? ", got \"" : "",
                               shell ? shell : "", shell ? "\"" : "");
}

static const tt__command *const *main_parts(void) {
    static const tt__command *const parts[] = {
        &tt__cmd_run,   &tt__cmd_launch, &tt__cmd_submit,     &tt__cmd_top,  &tt__cmd_trace,
        &tt__cmd_store, &tt__cmd_tune,   &tt__cmd_bench,      &tt__cmd_data, &tt__cmd_ckpt,
        &tt__cmd_plot,  &tt__cmd_doctor, &completion_command, NULL};
    return parts;
}

static int run_remote_node(void) {
    char host[64] = "?";
    int exit_code = TT__EXIT_FAILED;
    if (!tt__remote_node_run(STDIN_FILENO, &exit_code))
        return tt__remote_code(exit_code);
    tt__host_name(host, sizeof host);
    tt__cli_error("run", "host %s: %s", host, tt_last_error());
    return TT__REMOTE_FAILED;
}

static int tutti_main(int argc, char **argv) {
    const char *first = argc > 1 ? argv[1] : "";
    char flag[] = "--help", *ask[] = {argv[0], argc > 2 ? argv[2] : flag, flag, NULL};
    if (!strcmp(first, "help")) /* "tutti help run" is "tutti run --help" */
        return tt__cli_dispatch(&main_command, "command", argc > 2 ? 3 : 2, ask);
    if (argc == 2 && !strcmp(first, "remote-node")) /* for tutti run --ssh, not for users */
        return run_remote_node();
    if (argc == 2 && !strcmp(first, "remote-clock")) { /* for tutti doctor --ssh */
        tt__remote_clock_run(stdin, stdout);
        return TT__EXIT_OK;
    }
    if (!strcmp(first, "--version") || !strcmp(first, "-V")) {
        printf("tutti %s\n", tt_version());
        return TT__EXIT_OK;
    }
    return tt__cli_dispatch(&main_command, "command", argc, argv);
}

/* ---- if `ulimit -s` is too small */

enum { STACK = 1 << 20 };

/* makecontext() hands over no pointer. */
static struct {
    int argc, code;
    char **argv;
    ucontext_t back;
} elsewhere;

static void main_elsewhere(void) { elsewhere.code = tutti_main(elsewhere.argc, elsewhere.argv); }

/* Run on a stack of our own. Raising the limit is no way: the workers would inherit it, and it may be a hard one. */
static int main_on_large_stack(int argc, char **argv) {
    ucontext_t there;
    void *memory = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED || getcontext(&there)) {
        tt__cli_error(argv[1] ? argv[1] : "", "no memory for a stack, of which ulimit -s allows less than %d KiB: %s",
                      STACK >> 10, strerror(errno));
        return TT__EXIT_FAILED;
    }
    mprotect(memory, (size_t)sysconf(_SC_PAGESIZE), PROT_NONE);
    elsewhere.argc = argc;
    elsewhere.argv = argv;
    there.uc_stack = (stack_t){.ss_sp = memory, .ss_size = STACK};
    there.uc_link = &elsewhere.back;
    makecontext(&there, main_elsewhere, 0);
    swapcontext(&elsewhere.back, &there);
    return elsewhere.code;
}

static bool is_stack_small(void) {
    struct rlimit limit;
    return !getrlimit(RLIMIT_STACK, &limit) && limit.rlim_cur < STACK;
}

/* Fail if output was lost, as on a full disk: only the last flush reports it. */
int main(int argc, char **argv) {
    tt__children_keep_ends();
    int code = is_stack_small() ? main_on_large_stack(argc, argv) : tutti_main(argc, argv);
    errno = 0;
    bool lost = fflush(stdout) != 0 || ferror(stdout);
    if (!lost)
        return code;
    fprintf(stderr, "tutti: writing the output failed%s%s\n", errno ? ": " : "", errno ? strerror(errno) : "");
    return code ? code : TT__EXIT_FAILED;
}
