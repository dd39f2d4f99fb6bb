/* tutti launch: torch.distributed.launch, the older form of torchrun, whose programs take --local-rank=N. */
#include "cli/run/run.h"
#include "cli/run/run_flags.h"

static int launch_main(int argc, char **argv);

const tt__command tt__cmd_launch = {
    .name = "launch",
    .what = "as run, for programs that take --local-rank=N",
    .usage = "[FLAGS] PROGRAM [ARGUMENTS]\n[FLAGS] -m MODULE [ARGUMENTS]",
    .text =
        "Start PROGRAM once per rank as tutti run does, with --local-rank=N before its own arguments: "
        "torch.distributed.launch's command line. New programs read LOCAL_RANK instead, which is set, too; for those "
        "there is --use-env, or tutti run.\n"
        "\n"
        "  tutti launch --nproc_per_node=2 train.py --epochs 5\n"
        "  tutti launch --use-env --nproc-per-node=2 --no-python ./trainer",
    .flags = tt__run_flags_table,
    .notes = "The flags are those of tutti run. --no-python needs --use-env, as with PyTorch's.",
    .offer = TT__OFFER_FILES,
    .runs_program = true,
    .run = launch_main,
};

static int launch_main(int argc, char **argv) { return tt__run_main(&tt__cmd_launch, true, argc, argv); }
