/* tutti ckpt: look at checkpoints, compare and convert them. */
#include "cli/ckpt/ckpt.h"

#include "base/parse.h"

#include <tutti/base.h>

#include <getopt.h>

enum { JSON = 1, MAX_SHARD, WEIGHTS_ONLY };

static const tt__flag json_table[] = {{.name = "json", .id = JSON, .what = "print JSON, one object a line"}, {0}};

static const tt__flag convert_table[] = {
    {.name = "max-shard",
     .id = MAX_SHARD,
     .value = "MIB",
     .what = "of an index: how large its files may be, in MiB (default 4768, which is 5 GB)"},
    {.name = "weights-only", .id = WEIGHTS_ONLY, .what = "leave out all but the model: optimizer, averages, progress"},
    {0}};

static int ckpt_show_main(int argc, char **argv);
static int ckpt_verify_main(int argc, char **argv);
static int ckpt_diff_main(int argc, char **argv);
static int ckpt_convert_main(int argc, char **argv);

static const tt__command ckpt_show_command = {
    .name = "ckpt show",
    .what = "list what a checkpoint holds",
    .usage = "FILE [--json]",
    .text = "List the tensors of a checkpoint, and of a .pt file all other values, too. No code in the file is run.",
    .flags = json_table,
    .offer = TT__OFFER_FILES,
    .run = ckpt_show_main,
};

static const tt__command verify_command = {
    .name = "ckpt verify",
    .what = "read checkpoints whole, and say what is wrong",
    .usage = "FILE... [--json]",
    .text = "Read each file whole: headers, sizes and, of .pt files, checksums. Exit code 1 if one is damaged.",
    .flags = json_table,
    .offer = TT__OFFER_FILES,
    .run = ckpt_verify_main,
};

static const tt__command diff_command = {
    .name = "ckpt diff",
    .what = "compare two checkpoints, of any formats",
    .usage = "A B [--json]",
    .text = "Compare two checkpoints name by name: what only one has, other types, shapes and values. Exit code 1 if "
            "they differ.",
    .flags = json_table,
    .offer = TT__OFFER_FILES,
    .run = ckpt_diff_main,
};

static const tt__command convert_command = {
    .name = "ckpt convert",
    .what = "write a checkpoint in another format",
    .usage = "FROM TO [--weights-only] [--max-shard MIB]",
    .text =
        "Write what FROM holds as TO, in the format that TO ends in: .safetensors, .safetensors.index.json (several "
        "files), or .pt, .pth, .bin (PyTorch's). Safetensors hold tensors alone, under dotted names; what else a .pt "
        "file had is named and left out. With --weights-only TO has what a model's load_state_dict() expects in "
        "PyTorch: the "
        "model's parameters and buffers alone, of a training checkpoint (of a .pt file, what stands under \"model\", "
        "\"state_dict\" or \"model_state_dict\"), without a leading \"module.\". TO appears whole or not at all: what "
        "is written is called TO.tmp-... until "
        "it is complete, which Ctrl-C and SIGTERM remove; what a killed command (SIGKILL) left is removed by the next "
        "one that writes TO.",
    .flags = convert_table,
    .offer = TT__OFFER_FILES,
    .run = ckpt_convert_main,
};

static const tt__command *const *ckpt_parts(void) {
    static const tt__command *const parts[] = {&ckpt_show_command, &verify_command, &diff_command, &convert_command,
                                               NULL};
    return parts;
}

static int ckpt_main(int argc, char **argv) {
    if (argc < 2)
        return tt__cli_usage_error("ckpt", "expected \"show\", \"verify\", \"diff\" or \"convert\"");
    return tt__cli_dispatch(&tt__cmd_ckpt, "command", argc, argv);
}

const tt__command tt__cmd_ckpt = {
    .name = "ckpt",
    .what = "look at checkpoints, compare and convert them",
    .usage = "COMMAND [ARGUMENTS]",
    .text = "Checkpoints: safetensors, one file or several under NAME.safetensors.index.json, and PyTorch's .pt.",
    .notes = "Example:\n"
             "\n"
             "  tutti ckpt show model.pt\n"
             "  tutti ckpt convert model.pt model.safetensors\n"
             "  tutti ckpt convert --weights-only trained.safetensors weights.pt\n"
             "  tutti ckpt diff model.pt model.safetensors",
    .parts = ckpt_parts,
    .run = ckpt_main,
};

typedef struct flags {
    bool json, weights_only;
    int64_t max_shard;
} flags;

enum { PATHS_MAX = 4096 };

/* Parse flags and paths, `least` to `most` of them. Returns -1 to go on, else the exit code. */
static int ckpt_parse(const tt__command *command, flags *f, int argc, char **argv, char **paths, int least, int most) {
    int count = 0;
    tt__cli_normalise_flags(argc, argv);
    for (char *path; count <= most && (path = tt__cli_take_word(command, &argc, argv));)
        paths[count++] = path;
    for (int id; (id = tt__cli_next_flag(command, argc, argv, NULL)) != -1;) {
        if (id == 'h' || id == '?')
            return id == 'h' ? TT__EXIT_OK : TT__EXIT_USAGE;
        if (id == JSON)
            f->json = true;
        else if (id == WEIGHTS_ONLY)
            f->weights_only = true;
        else if (tt__parse_i64("--max-shard", optarg, 1, 1 << 30, &f->max_shard))
            return tt__cli_usage_error(command->name, "%s", tt_last_error());
    }
    paths[count < most ? count : most] = NULL;
    if (count >= least && count <= most)
        return -1;
    return tt__cli_usage_error(command->name, "expected %s%s, got %d", least == 1 ? "a file" : "two files",
                               most > least ? " or more" : "", count);
}

static int ckpt_show_main(int argc, char **argv) {
    flags f = {.json = false};
    char *paths[3];
    int code = ckpt_parse(&ckpt_show_command, &f, argc, argv, paths, 1, 1);
    return code >= 0 ? code : tt__ckpt_show(paths[0], f.json);
}

static int ckpt_verify_main(int argc, char **argv) {
    flags f = {.json = false};
    static char *paths[PATHS_MAX + 2];
    int code = ckpt_parse(&verify_command, &f, argc, argv, paths, 1, PATHS_MAX), count = 0;
    while (code < 0 && paths[count])
        count++;
    return code >= 0 ? code : tt__ckpt_verify(count, paths, f.json);
}

static int ckpt_diff_main(int argc, char **argv) {
    flags f = {.json = false};
    char *paths[4];
    int code = ckpt_parse(&diff_command, &f, argc, argv, paths, 2, 2);
    return code >= 0 ? code : tt__ckpt_diff(paths[0], paths[1], f.json);
}

static int ckpt_convert_main(int argc, char **argv) {
    flags f = {.max_shard = 0};
    char *paths[4];
    int code = ckpt_parse(&convert_command, &f, argc, argv, paths, 2, 2);
    return code >= 0 ? code : tt__ckpt_convert(paths[0], paths[1], f.weights_only, (uint64_t)f.max_shard << 20);
}
