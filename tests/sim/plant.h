/* Bugs that plants.py has put into copies of the product's sources. */
#ifndef SIM_PLANT_H
#define SIM_PLANT_H

#include <stdbool.h>

/* The number of the one that is there, from 1; 0: none. */
extern int sim_plant;

static inline bool sim_has_plant(int number) { return sim_plant == number; }

/* All of them, in the program that has them. `there`: its place in the source was found. */
typedef struct sim_plant_row {
    const char *what, *source;
    bool there;
} sim_plant_row;

extern const int sim_plant_count;
extern const sim_plant_row sim_plant_rows[];

#endif
