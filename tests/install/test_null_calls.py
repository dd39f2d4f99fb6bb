"""Calls every public function with every NULL, impossible size and impossible enum: whatever comes of it, none may
crash. Some calls share a process, and are made again in one each where that doesn't end well. The functions and the
fields of their options are read from the headers, so that a new one is called, too."""

import os
import re
import subprocess
import sys
import tempfile

SOURCE, BUILD = os.environ["TT_SOURCE"], os.environ["TT_BUILD"]
sys.path.insert(0, os.path.join(SOURCE, "tools"))
import lint  # noqa: E402

HEADERS = sorted(name for name in os.listdir(os.path.join(SOURCE, "include/tutti")) if name.endswith(".h"))

# What a call needs, by type: an expression that makes one in the process that calls.
OBJECTS = {
    "tt_tensor": "tensor()", "tt_group": "group()", "tt_store": "store()", "tt_module": "tt_nn_linear(3, 2)",
    "tt_optimizer": "tt_sgd(tt_module_parameters(tt_nn_linear(3, 2)), 0.1)", "tt_sampler": "tt_in_order()",
    "tt_ema": "tt_ema_new(tt_module_parameters(tt_nn_linear(3, 2)), 0.5)",
    "tt_lr_scheduler": "tt_exponential_lr(tt_sgd(tt_module_parameters(tt_nn_linear(3, 2)), 0.1), 0.5)",
    "tt_dataset": "dataset()", "tt_loader": "tt_loader_new(dataset(), 1, tt_in_order())",
    "tt_named_tensors": "tt_module_parameters(tt_nn_linear(3, 2))", "tt_generator": "tt_generator_new(1)",
    "tt_transform": "tt_to_tensor()", "tt_draws": "NULL",
    "tt_scope": "tt_scope_new()", "tt_value": "tt_value_of_int(3)", "tt_reducer": "NULL", "tt_work": "NULL",
    "tt_elastic": "NULL", "tt_elastic_writer": "NULL", "tt_mesh": "mesh()", "tt_model_averager": "NULL",
    "tt_trainer": "NULL", "tt_summary_writer": 'tt_summary_writer_new("run")',
    "tt_rpc": "rpc()", "tt_rref": "tt_rref_new(rpc(), tt_rpc_int(1))", "tt_future": "tt_future_new()",
}
# Lists that are wrong inside.
LISTS = {"tt_named_tensors": [f"list({i})" for i in range(6)]}
ELLIPSIS = {"tt_fail"}  # its format is the caller's, as printf()'s
FREES_ITS_ARGUMENT = {"tt_rrefs_free"}  # a list that another call has made: no memory of the program's
INTEGERS = r"(int|_Bool|int64_t|uint64_t|uint32_t|uint8_t|size_t|bool|long|char|double|float|unsigned|unsigned long)"
WRONG = ["-1", "9999", "INT64_MIN", "INT64_MAX", "0"]
POSSIBLE = {"n_embd", "n_layer"}  # what may well be 9999: such a model has gigabytes of weights, or takes long to make

PROGRAM = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
%(includes)s
static _Alignas(64) unsigned char scratch[16][65536]; /* what pointers point to: zeros, also where NULL ends a list */
static inline tt_tensor *tensor(void) { return tt_ones(TT_SHAPE(2, 3), TT_F32); }
static inline tt_store *store(void) {
    tt_store *s = NULL;
    if (!tt_hash_store(&s, 1))
        tt_store_set_timeout_ms(s, 1);
    return s;
}
static inline tt_group *group(void) {
    tt_group *g = NULL;
    tt_ignore(tt_init_process_group(&g, .init_method = "tcp://localhost:0", .rank = 0, .world_size = 1));
    return g;
}
static inline tt_rpc *rpc(void) {
    static tt_rpc *r;
    if (!r)
        tt_ignore(tt_rpc_init(&r, "alone", .store = store()));
    return r;
}
static inline tt_mesh *mesh(void) {
    tt_mesh *m = NULL;
    tt_ignore(tt_init_device_mesh(&m, group(), {"dp", 1}));
    return m;
}
static inline tt_named_tensors *list(int i) {
    static const char *names[2];
    static tt_tensor *tensors[2];
    static tt_named_tensors lists[6];
    for (int k = 0; k < 6; k++)
        lists[k] = (tt_named_tensors){.size = k ? sizeof *lists : 0, .count = k == 5 ? -1 : 2};
    lists[2].names = lists[4].names = names;
    lists[3].tensors = lists[4].tensors = tensors;
    return &lists[i];
}
static inline tt_dataset *dataset(void) { return tt_tensor_dataset(tensor(), tensor()); }

%(calls)s
static const struct {
    void (*call)(void);
    const char *text;
    int may_wait;
} cases[] = {
%(cases)s};

/* The signal that ended a process that makes `count` calls, 0 if none did. */
static int made(int first, int count) {
    pid_t child = fork();
    if (!child) {
        if (cases[first].may_wait)
            ualarm(200000, 0);
        else
            alarm(20);
        for (int i = 0; i < count; i++)
            cases[first + i].call();
        _exit(0);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child)
        exit(2);
    return WIFSIGNALED(status) && !(cases[first].may_wait && WTERMSIG(status) == SIGALRM) ? WTERMSIG(status) : 0;
}

int main(void) {
    int bad = 0, n = (int)(sizeof cases / sizeof *cases);
    for (int i = 0, count; i < n; i += count) {
        count = 1;
        while (!cases[i].may_wait && count < 32 && i + count < n && !cases[i + count].may_wait)
            count++;
        if (!made(i, count))
            continue;
        for (int k = i; k < i + count; k++) {
            int signal = made(k, 1);
            if (signal) {
                printf("%%s: %%s\n", strsignal(signal), cases[k].text);
                bad++;
            }
        }
    }
    printf("%%d calls, %%d of them crashed\n", n, bad);
    return bad != 0;
}
"""


def preprocessed():
    text = "".join(f"#include <tutti/{name}>\n" for name in HEADERS)
    command = [os.environ.get("CC", "cc"), "-E", "-P", "-x", "c", "-I", os.path.join(SOURCE, "include"), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def without_attributes(text):
    """Remove __attribute__((...)), whose parentheses nest."""
    while (at := text.find("__attribute__")) >= 0:
        end, depth = text.index("(", at), 0
        while True:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
            if not depth:
                break
        text = text[:at] + text[end:]
    return text


def split_parameters(text):
    parts, depth = [""], 0
    for c in text:
        depth += {"(": 1, ")": -1}.get(c, 0)
        if c == "," and not depth:
            parts.append("")
        else:
            parts[-1] += c
    return [part.strip() for part in parts if part.strip() not in ("", "void")]


class Value:
    """A parameter, or a field of options: its type and name, and what can be passed."""

    def __init__(self, declaration):
        declaration = re.sub(r"\s+", " ", declaration)
        match = re.match(r"(.*?)(\w+)(\[\w*\])?$", declaration)
        self.callback = "(*" in declaration
        self.type, self.name = ("", "") if self.callback else (match[1].strip(), match[2])
        self.array = not self.callback and bool(match[3])
        base = self.type.replace("const", "").strip()
        self.pointer = self.callback or "*" in self.type or self.array
        self.object = OBJECTS.get(base.replace("*", "").strip()) if base.count("*") == 1 and not self.array else None
        self.number = not self.pointer and re.fullmatch(INTEGERS, base)
        self.base = base

    def good(self, i, typedefs):
        if self.callback or self.base in typedefs["functions"]:
            return "NULL"
        if self.object:
            return self.object
        if self.base.count("*") == 1 and self.inner() in typedefs["opaque"]:
            return "NULL"
        if self.pointer:
            if re.fullmatch(r"char ?\*", self.base) and "const" in self.type:
                return '"127.0.0.1"' if "host" in self.name else '"x"'
            return f"(void *)scratch[{i % 16}]"
        if self.number or self.base in typedefs["enums"]:
            return "1" if self.number else "0"
        return f"({self.base}){{0}}"

    def inner(self):
        return self.base.replace("struct ", "").replace("*", "").strip()

    def null(self, typedefs):
        if self.pointer or self.base in typedefs["functions"]:
            return "NULL"
        return "0" if self.number or self.base in typedefs["enums"] else f"({self.base}){{0}}"

    def wrong(self, typedefs):
        if self.pointer or self.base in typedefs["functions"]:
            return []
        if self.base in typedefs["enums"]:
            return [f"({self.base})9999", f"({self.base})-1"]
        wrong = [value for value in WRONG if value != "9999" or self.name not in POSSIBLE]
        return [f"({self.base}){value}" for value in wrong] if self.number else []


def variants(values, typedefs):
    """Lists of expressions, one for each value: NULL one at a time, impossible numbers one at a time."""
    good = [value.good(i, typedefs) for i, value in enumerate(values)]
    nothing = [value.null(typedefs) for value in values]
    objects = [g if value.object or not value.pointer else n for g, n, value in zip(good, nothing, values)]
    yield nothing, False
    yield good, False
    for i, value in enumerate(values):
        if value.pointer:
            for wrong in ["NULL"] + LISTS.get(value.base.replace("*", "").strip(), []):
                yield good[:i] + [wrong] + good[i + 1:], False
        for wrong in value.wrong(typedefs):
            waits = "timeout" in value.name or "heartbeat" in value.name
            # So many elements are nowhere: raw memory isn't given, except to what must see that the number is
            # impossible.
            refused = value.base != "size_t" and ("-1" in wrong or "MIN" in wrong)
            for others in (nothing, objects, good) if refused else (nothing, objects):
                yield others[:i] + [wrong] + others[i + 1:], waits


def read_declarations(text, public):
    typedefs = {
        "enums": set(re.findall(r"\}\s*(tt_\w+)\s*;", "".join(re.findall(r"typedef enum[^;]*;", text)))),
        "functions": set(re.findall(r"typedef [^;{]*\(\*(tt_\w+)\)\s*\(", text)),
    }
    structs = {}
    for match in re.finditer(r"typedef struct (tt_\w+) \{(.*?)\} \1;", text, flags=re.S):
        fields = []
        if "{" in match[2]:  # a value, with a union: no options
            continue
        for field in match[2].split(";"):
            if field.strip():
                names = split_parameters(re.sub(r"\s+", " ", field.strip()))
                fields.append(Value(names[0]))
                base = names[0][: len(names[0]) - len(fields[-1].name)] if not fields[-1].callback else ""
                fields += [Value(base.rstrip("* ") + " " + more) for more in names[1:]]
        structs[match[1]] = fields
    typedefs["opaque"] = set(re.findall(r"typedef struct (tt_\w+) tt_\w+;", text)) - structs.keys()
    functions = {}
    for match in re.finditer(r"([\w \*\n]+?)\b(tt_\w+)\s*\(([^;{}]*)\)\s*;", text):
        if match[2] in public and "return" not in match[1]:
            functions[match[2]] = [Value(part) for part in split_parameters(match[3].replace("\n", " "))]
    return typedefs, structs, functions


def calls_of(name, values, structs, typedefs):
    """Bodies of calls, with what a report says of each."""
    first = values[0].base.replace("*", "").strip() if values else ""
    if name.endswith("_with") and first in structs and len(values) == 2:
        for size in ("0", f"sizeof({first})"):
            yield f"(void){name}(NULL, {size});", f"{name}(NULL, {size})", False
        for expressions, waits in variants(structs[first], typedefs):
            fields = ", ".join(f".{field.name} = {e}" for field, e in zip(structs[first], expressions)
                               if field.name and not field.array)
            yield (f"(void){name}(&({first}){{{fields}}}, sizeof({first}));", f"{name}({fields})",
                   waits or ".timeout_ms = 0" in fields)
        return
    for expressions, waits in variants(values, typedefs):
        text = f"{name}({', '.join(expressions)})"
        yield f"(void){text};", text, waits


def write_program(path):
    public = set().union(*(lint.public_functions(open(os.path.join(SOURCE, "include/tutti", name)).read())
                           for name in HEADERS)) - ELLIPSIS - FREES_ITS_ARGUMENT
    typedefs, structs, functions = read_declarations(without_attributes(preprocessed()), public)
    if missing := public - functions.keys():
        sys.exit(f"no declaration understood of {', '.join(sorted(missing))}")
    calls, cases, seen = [], [], set()
    for name in sorted(public):
        for body, text, waits in calls_of(name, functions[name], structs, typedefs):
            if body in seen:
                continue
            seen.add(body)
            quoted = text.replace("\\", "\\\\").replace('"', '\\"')
            cases.append(f'    {{call_{len(calls)}, "{quoted}", {int(waits)}}},\n')
            calls.append(f"static void call_{len(calls)}(void) {{ {body} }}\n")
    includes = "".join(f"#include <tutti/{header}>\n" for header in HEADERS)
    with open(path, "w") as file:
        file.write(PROGRAM % {"includes": includes, "calls": "".join(calls), "cases": "".join(cases)})


def main():
    with tempfile.TemporaryDirectory(prefix="tutti-null-") as folder:
        source, program = os.path.join(folder, "calls.c"), os.path.join(folder, "calls")
        write_program(source)
        libraries = os.path.join(BUILD, "lib")
        subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11", "-w", "-O0", "-I", os.path.join(SOURCE, "include"),
                        source, "-o", program, "-L", libraries, "-ltutti", "-ltutti-comm", f"-Wl,-rpath,{libraries}"],
                       check=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TT_")}
        done = subprocess.run([program], cwd=folder, env=dict(environment, OMP_NUM_THREADS="1"), timeout=500)
        return done.returncode


if __name__ == "__main__":
    sys.exit(main())
