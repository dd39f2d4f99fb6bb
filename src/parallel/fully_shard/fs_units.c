/* Which modules are units. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "parallel/fully_shard/fully_shard.h"

static tt_status units_no_memory(void) { return tt__fail(TT_ERR_MEMORY, "%s: no memory for the units", FS_SITE); }

static bool has_parameters(tt_module *module) {
    const tt_named_tensors *list = tt_module_parameters(module);
    return list && list->count > 0;
}

/* Add a unit; `name` NULL: of the rest. */
static tt_status add_unit(tt__fs *fs, const char *name, tt_module *module) {
    tt__fs_unit *units = reallocarray(fs->units, fs->unit_count + 1, sizeof *units);
    if (!units)
        return units_no_memory();
    fs->units = units;
    tt__fs_unit *u = &units[fs->unit_count++];
    *u = (tt__fs_unit){.owner = fs, .module = module, .name = strdup(name ? name : "(rest)")};
    if (!u->name || asprintf(&u->gather_site, "gathering unit \"%s\"", u->name) < 0)
        return u->gather_site = NULL, units_no_memory();
    if (asprintf(&u->average_site, "averaging unit \"%s\"", u->name) < 0)
        return u->average_site = NULL, units_no_memory();
    return TT_OK;
}

static bool is_list(const tt_module *module) {
    const char *name = tt_module_class_name(module);
    return !strcmp(name, "Sequential") || !strcmp(name, "ModuleList");
}

/* Find the children of the outermost lists below `module`, whose name is `path`. */
static tt_status find_below(tt__fs *fs, tt_module *module, const char *path) {
    tt_status status = TT_OK;
    for (int64_t i = 0; i < tt_module_child_count(module) && !status; i++) {
        tt_module *child = tt_module_child_at(module, i);
        char *name = NULL;
        if (!has_parameters(child))
            continue;
        if (asprintf(&name, "%s%s%s", path, *path ? "." : "", tt_module_child_name(module, i)) < 0)
            return units_no_memory();
        status = is_list(module) ? add_unit(fs, name, child) : find_below(fs, child, name);
        free(name);
    }
    return status;
}

/* Find the module of this path; NULL: there is none. */
static tt_module *module_at(tt_module *module, const char *path) {
    char *copy = strdup(path), *rest = NULL;
    for (char *name = copy ? strtok_r(copy, ".", &rest) : NULL; name && module; name = strtok_r(NULL, ".", &rest))
        module = tt_module_child(module, name);
    free(copy);
    return copy ? module : NULL;
}

/* Is one name the other, or of something inside it? */
static bool holds(const char *outer, const char *inner) {
    size_t n = strlen(outer);
    return !strncmp(outer, inner, n) && (!inner[n] || inner[n] == '.');
}

static tt_status add_named_unit(tt__fs *fs, const char *name) {
    if (!name || !*name)
        return tt__fail(TT_ERR_INVALID, "%s: .units: expected the name of a module, got %s", FS_SITE,
                        name ? "\"\"" : "NULL");
    for (size_t i = 0; i < fs->unit_count; i++)
        if (holds(fs->units[i].name, name) || holds(name, fs->units[i].name))
            return tt__fail(TT_ERR_INVALID, "%s: .units: \"%s\" and \"%s\" share modules", FS_SITE, fs->units[i].name,
                            name);
    tt_module *module = module_at(fs->module, name);
    if (!module)
        return tt__fail(TT_ERR_NOT_FOUND, "%s: .units: the %s has no module \"%s\"", FS_SITE,
                        tt_module_class_name(fs->module), name);
    if (!has_parameters(module))
        return tt__fail(TT_ERR_INVALID, "%s: .units: \"%s\" has no parameters", FS_SITE, name);
    return add_unit(fs, name, module);
}

tt_status tt__fs_find_units(tt__fs *fs, const tt_fully_shard_args *args) {
    if (args->unit_count < 0 || (args->unit_count && !args->units))
        return tt__fail(TT_ERR_INVALID, "%s: expected a list of units, got %lld at %s", FS_SITE,
                        (long long)args->unit_count, args->units ? "a list" : "NULL");
    for (int64_t i = 0; i < args->unit_count; i++)
        TT__TRY(add_named_unit(fs, args->units[i]));
    if (!args->units)
        TT__TRY(find_below(fs, tt__module_unwrapped(fs->module), ""));
    TT__TRY(add_unit(fs, NULL, NULL));
    return TT_OK;
}
