#include "sim/verdict.h"

#include "sim/mutants.h"
#include "sim/world.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

sim_verdict *sim_result;
int sim_mutant;
const char *const sim_mutant_texts[] = {
    "none",
#define MUTANT(name, what) what,
#include "sim/mutants.def"
#undef MUTANT
};

static _Noreturn void leave(void) {
    sim_result->virtual_ns = sim_now_ns();
    fflush(stdout);
    _exit(0);
}

void sim_fail(const char *check, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(sim_result->text, sizeof sim_result->text, format, args);
    va_end(args);
    snprintf(sim_result->check, sizeof sim_result->check, "%s", check);
    sim_trace(-1, "WRONG (%s): %s", check, sim_result->text);
    leave();
}

void sim_pass(void) { leave(); }

void *sim_memory(void *memory) {
    if (!memory)
        sim_fail("machine", "out of memory");
    return memory;
}
