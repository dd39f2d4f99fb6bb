/* Shared by all checks: adding findings, reading a line of a file. */
#include "base/text/format.h"
#include "base/text/plain_text.h"
#include "cli/doctor/doctor.h"

#include <stdarg.h>
#include <string.h>

void tt__doctor_add(tt__doctor *doctor, const char *check, tt__finding_level verdict, const char *format, ...) {
    va_list args;
    if (doctor->n == TT__FINDINGS_MAX)
        return;
    tt__finding *finding = &doctor->findings[doctor->n++];
    *finding = (tt__finding){.check = check, .verdict = verdict};
    va_start(args, format);
    tt__vformat(finding->found, sizeof finding->found, format, args);
    va_end(args);
    tt__make_plain_name(finding->found);
}

void tt__doctor_fix(tt__doctor *doctor, const char *format, ...) {
    va_list args;
    tt__finding *finding = &doctor->findings[doctor->n - 1];
    va_start(args, format);
    tt__vformat(finding->fix, sizeof finding->fix, format, args);
    va_end(args);
    tt__make_plain_name(finding->fix);
}

bool tt__doctor_several_hosts(const tt__doctor *doctor) {
    const tt__launched *l = &doctor->launched;
    return l->name && l->local_world && l->local_world < l->world;
}

void tt__doctor_read_line(const char *path, const char *name, char *value, size_t size) {
    char line[256];
    size_t length = strlen(name);
    *value = '\0';
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, name, length) != 0 || line[length] != ':')
            continue;
        const char *text = line + length + 1 + strspn(line + length + 1, " \t");
        snprintf(value, size, "%.*s", (int)strcspn(text, "\n"), text);
        break;
    }
    if (file)
        fclose(file);
}
