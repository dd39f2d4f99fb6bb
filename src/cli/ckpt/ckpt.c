/* tutti ckpt: look at checkpoints, compare and convert them. */
#include "cli/ckpt/ckpt.h"

#include "base/error.h"
#include "base/text/parse.h"
#include "checkpoint/entries.h"
#include "cli/cli.h"

#include <tutti/base.h>

#include <getopt.h>
#include <stdio.h>
#include <string.h>

enum { JSON = 1, MAX_SHARD, WEIGHTS_ONLY };

static const tt__flag json_table[] = {TT__SWITCH("json", JSON, "print JSON, one object a line"), {0}};

static const tt__flag convert_table[] = {
    TT__VALUE("max-shard", MAX_SHARD, "MIB",
              "of an index: how large its files may be, in MiB (default 4768, which is 5 GB)"),
    TT__SWITCH("weights-only", WEIGHTS_ONLY, "leave out all but the model: optimizer, averages, progress"),
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

/* ---- convert: from any format to the one that the name of the new file says ---- */

/* Tell what safetensors can't hold. */
static void note_left_out(const tt__ckpt_file *file) {
    size_t others = 0;
    const char *first = NULL;
    for (size_t i = 0; i < file->count; i++) {
        if (file->rows[i].tensor)
            continue;
        first = first ? first : file->rows[i].name;
        others++;
    }
    if (others)
        tt__cli_note("ckpt convert", "left out %zu values that are no tensors, such as \"%s\"", others, first);
}

/* ---- the weights alone ---- */

/* Find the model in a training checkpoint, where PyTorch's programs keep it. */
static const tt_value *model_of(const tt_value *root) {
    static const char *const keys[] = {"model", "state_dict", "model_state_dict"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const tt_value *found = tt_value_typeof(root) == TT_VALUE_DICT ? tt_value_find(root, keys[i]) : NULL;
        if (found && tt_value_typeof(found) == TT_VALUE_DICT)
            return found;
    }
    return root;
}

/* Do all names begin with "module.", which DDP puts before them? */
static bool are_wrapped(const tt__entries *e) {
    for (size_t i = 0; i < e->count; i++)
        if (strncmp(e->names[i], "module.", strlen("module.")) != 0)
            return false;
    return e->count > 0;
}

/* List the model's entries; tt__entries_free() must follow, whatever is returned. */
static tt_status find_weights(const tt__ckpt_file *file, tt__entries *weights) {
    const tt_named_tensors *all =
        file->value ? tt_value_tensors(model_of(file->value)) : tt_safetensors_tensors(file->safetensors);
    if (!all)
        return tt_last_status();
    TT__TRY(tt__entries_make(weights, (size_t)all->count));
    for (int64_t i = 0; i < all->count; i++)
        if (tt__part_of(all->names[i]) == TT__PART_MODEL)
            tt__entries_add(weights, all->names[i], all->tensors[i]);
    bool wrapped = are_wrapped(weights);
    for (size_t i = 0; wrapped && i < weights->count; i++)
        weights->names[i] += strlen("module.");
    return weights->count ? TT_OK : tt__fail(TT_ERR_NOT_FOUND, "%s: there are no weights in it", file->path);
}

/* ---- writing ---- */

static tt_status save_as_torch(const tt_named_tensors *tensors, const char *to) {
    tt_value *dict = tt_value_of_tensors(tensors);
    tt_status status = tt_torch_save(to, dict);
    tt_value_free(dict);
    return status;
}

static tt_status save_as_safetensors(const tt_named_tensors *tensors, const char *to, uint64_t max_shard_bytes) {
    if (tt__ends_with(to, ".safetensors.index.json"))
        return tt_safetensors_save_sharded(to, tensors, .max_shard_bytes = max_shard_bytes);
    return tt_safetensors_save(to, tensors, NULL, 0);
}

static tt_status save_weights(const tt__ckpt_file *file, const char *to, bool torch, uint64_t max_shard_bytes) {
    tt__entries weights = {0};
    tt_status status = find_weights(file, &weights);
    if (!status)
        status = torch ? save_as_torch(tt__entries_view(&weights), to)
                       : save_as_safetensors(tt__entries_view(&weights), to, max_shard_bytes);
    tt__entries_free(&weights);
    return status;
}

static tt_status write_whole_file(const tt__ckpt_file *file, const char *to, bool torch, uint64_t max_shard_bytes) {
    if (torch)
        return file->value ? tt_torch_save(to, file->value)
                           : save_as_torch(tt_safetensors_tensors(file->safetensors), to);
    const tt_named_tensors *tensors =
        file->value ? tt_value_tensors(file->value) : tt_safetensors_tensors(file->safetensors);
    if (!tensors)
        return tt_last_status();
    if (file->value)
        note_left_out(file);
    return save_as_safetensors(tensors, to, max_shard_bytes);
}

static int convert_checkpoint(const char *from, const char *to, bool weights_only, uint64_t max_shard_bytes) {
    bool torch = tt__ends_with(to, ".pt") || tt__ends_with(to, ".pth") || tt__ends_with(to, ".bin");
    if (!torch && !tt__ends_with(to, ".safetensors") && !tt__ends_with(to, ".safetensors.index.json"))
        return tt__cli_usage_error("ckpt convert",
                                   "expected a new file that ends in .safetensors, .safetensors.index.json, .pt, .pth "
                                   "or .bin, got %s",
                                   to);
    tt__ckpt_file file;
    tt__cli_end_cleanly();
    tt_status status = tt__ckpt_open(&file, from);
    if (!status)
        status = (weights_only ? save_weights : write_whole_file)(&file, to, torch, max_shard_bytes);
    if (status)
        tt_report();
    tt__ckpt_free(&file);
    return status ? TT__EXIT_FAILED : TT__EXIT_OK;
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
    return code >= 0 ? code : convert_checkpoint(paths[0], paths[1], f.weights_only, (uint64_t)f.max_shard << 20);
}
