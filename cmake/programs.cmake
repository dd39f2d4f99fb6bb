# cmake -DLABEL=... -DOUT=... -DSOURCES="a.c b.c" -P programs.cmake
# Write OUT/programs.h and OUT/programs.c: one program of many. Each source's main() is compiled as NAME_main(); the
# program runs the one whose name it is called by, as links of these names lead to it.
cmake_minimum_required(VERSION 3.20)
separate_arguments(SOURCES)
set(prototypes "")
set(rows "")
foreach(source ${SOURCES})
  get_filename_component(name ${source} NAME_WE)
  file(STRINGS ${source} forms REGEX "^int main\\(")
  if(forms MATCHES "^int main\\(void\\)")
    string(APPEND prototypes "int ${name}_main(void);\n")
    string(APPEND rows "    {\"${name}\", ${name}_main, NULL},\n")
  else()
    string(APPEND prototypes "int ${name}_main(int argc, char **argv);\n")
    string(APPEND rows "    {\"${name}\", NULL, ${name}_main},\n")
  endif()
endforeach()
file(CONFIGURE OUTPUT ${OUT}/programs.h @ONLY CONTENT
     "/* Written by cmake/programs.cmake: the programs of tests/@LABEL@. */\n@prototypes@")
file(CONFIGURE OUTPUT ${OUT}/programs.c @ONLY CONTENT [=[
/* Written by cmake/programs.cmake: the programs of tests/@LABEL@ in one. */
#include <stdio.h>
#include <string.h>

typedef struct {
    const char *name;
    int (*alone)(void);
    int (*with_arguments)(int argc, char **argv);
} program;

static const program programs[] = {
@rows@};

int main(int argc, char **argv) {
    const char *slash = argc ? strrchr(argv[0], '/') : NULL;
    const char *name = slash ? slash + 1 : argc ? argv[0] : "";
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (!strcmp(name, programs[i].name))
            return programs[i].alone ? programs[i].alone() : programs[i].with_arguments(argc, argv);
    fprintf(stderr, "%s: no program of tests/@LABEL@ has this name; these are in here:\n", name);
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        fprintf(stderr, "  %s\n", programs[i].name);
    return 2;
}
]=])
