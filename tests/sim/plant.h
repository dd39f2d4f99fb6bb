/* Which of the bugs that plants.py has put into copies of the product's sources is there; 0: none. */
#ifndef SIM_PLANT_H
#define SIM_PLANT_H

extern int sim_plant;

#endif
