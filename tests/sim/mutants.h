/* The bugs that are planted in test_plants: base/build.h. */
#ifndef SIM_MUTANTS_H
#define SIM_MUTANTS_H

typedef enum sim_mutant_name {
    SIM_NO_MUTANT,
#define MUTANT(name, what) SIM_MUTANT_##name,
#include "sim/mutants.def"
#undef MUTANT
    SIM_MUTANTS_END
} sim_mutant_name;

/* The bug that is planted now. */
extern int sim_mutant;

/* What is wrong with each bug. */
extern const char *const sim_mutant_texts[];

#endif
