"""Several cases in one job, for programs whose ranks import PyTorch, which takes a rank longer than most cases do. A
rank begins each case in a process that it forks, with a place of its own in the store and files for what it says.

torch_package.launch_cases() starts such a job; the program asks its rank for the name of its function."""
import json
import os
import sys


def function(argument):
    """The program's only argument: the name of a function, or, behind "@", a folder with cases. Each case's process
    comes back with the name of its own; the rank that begins them ends in here."""
    if argument[0] != "@":
        return argument
    folder, rank = argument[1:], os.environ["RANK"]
    with open(f"{folder}/cases", encoding="ascii") as file:
        cases = json.load(file)
    for number, (name, environment) in enumerate(cases):
        child = os.fork()
        if not child:
            for stream, kind in (1, "out"), (2, "err"):
                os.dup2(os.open(f"{folder}/{number}.{rank}.{kind}", os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
            # PyTorch's meeting has a prefix for each attempt of the launcher's.
            os.environ.update(environment, TORCHELASTIC_RESTART_COUNT=str(number))
            return name
        with open(f"{folder}/{number}.{rank}.code", "w", encoding="ascii") as file:
            file.write(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
    sys.exit(0)
