#!/bin/sh
# Calls of the tensor stack that lack a required argument, or have one of the wrong kind, don't compile; their right
# twins do, as strict C11 without a warning.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
tried=0

# compiles STATEMENT: with the names that the cases use
compiles() {
    printf '%s\n' '#include <tutti/tutti.h>' 'void f(tt_group *g, tt_module *m, tt_tensor *x, tt_optimizer *o);' \
        'void f(tt_group *g, tt_module *m, tt_tensor *x, tt_optimizer *o) {' \
        'const tt_named_tensors *p = tt_module_parameters(m); (void)g, (void)x, (void)o, (void)p;' "(void)!$1;" '}' >"$folder/case.c"
    for compiler in gcc clang; do
        command -v $compiler >/dev/null || continue
        $compiler -std=c11 -pedantic-errors -Wall -Wextra -Werror -fsyntax-only -I"$TT_SOURCE/include" "$folder/case.c" \
            2>"$folder/errors" || return 1
        tried=$((tried + 1))
    done
}

right() { compiles "$1" || { echo "FAILED: does not compile: $1"; cat "$folder/errors"; exit 1; }; }
wrong() { if compiles "$1"; then echo "FAILED: compiles: $1"; exit 1; fi; }

# pair RIGHT WRONG...
pair() {
    right "$1"
    shift
    for case in "$@"; do wrong "$case"; done
}

pair 'tt_nn_linear(4, 3, .no_bias = true)' 'tt_nn_linear(4)' 'tt_nn_linear(4, .no_bias = true)' 'tt_nn_linear()' 'tt_nn_linear(4, 3, true)'
pair 'tt_nn_sequential(m, tt_nn_relu())' 'tt_nn_sequential(x)'
pair 'tt_nn_sequential_named({"a", m}, {"b", tt_nn_relu()})' 'tt_nn_sequential_named(m)'
pair 'tt_module_register_buffer(m, "b", x, .non_persistent = true)' 'tt_module_register_buffer(m, "b")' \
    'tt_module_register_buffer(m, "b", .non_persistent = true)' 'tt_module_register_buffer(m, "b", x, true)'
pair 'tt_sgd(p, 0.1)' 'tt_sgd(p)' 'tt_sgd(p, .momentum = 0.9)' 'tt_sgd(m, 0.1)' 'tt_sgd(p, 0.1, 0.9)'
pair 'tt_sgd(tt_module_parameters(m), 0.1, .momentum = 0.9)'
pair 'tt_adam(p, 0.1, .beta1 = 0.8)' 'tt_adam(p)' 'tt_adam(p, .beta1 = 0.8)'
pair 'tt_adamw(p, 0.1, 0.01)' 'tt_adamw(p, 0.1)' 'tt_adamw(p, 0.1, .amsgrad = true)' 'tt_adamw(p, 0.1, 0.01, 0.9)'
pair 'tt_optimizer_add_param_group(o, p, .options = TT_OPTION_LIST({"lr", 0.1}, {"momentum", 0}))' 'tt_optimizer_add_param_group(o)'
pair 'tt_ddp(m, g, .bucket_cap_bytes = 1)' 'tt_ddp(m)' 'tt_ddp(m, .bucket_cap_bytes = 1)' 'tt_ddp(g, m)' 'tt_ddp(m, g, 1024)'
pair 'tt_tensor_all_reduce(g, x, TT_SUM)' 'tt_tensor_all_reduce(g, x)' 'tt_tensor_all_reduce(g, x, .timeout_ms = 5)'
pair 'tt_tensor_reduce(g, x, TT_SUM, 0)' 'tt_tensor_reduce(g, x, TT_SUM)'
pair 'tt_tensor_broadcast(g, x, 0)' 'tt_tensor_broadcast(g, x)'
pair 'tt_tensor_all_gather(g, x, x)' 'tt_tensor_all_gather(g, x)'
pair 'tt_tensor_gather(g, x, NULL, 0)' 'tt_tensor_gather(g, x, x)'
pair 'tt_tensor_scatter(g, x, x, 0)' 'tt_tensor_scatter(g, x, x)'
pair 'tt_tensor_reduce_scatter(g, x, x, TT_SUM)' 'tt_tensor_reduce_scatter(g, x, x)'
pair 'tt_tensor_all_to_all(g, x, x)' 'tt_tensor_all_to_all(g, x)'
pair 'tt_tensor_send(g, x, 1, .tag = 7)' 'tt_tensor_send(g, x)' 'tt_tensor_send(g, x, .tag = 7)'
pair 'tt_tensor_recv(g, x, TT_ANY_SOURCE)' 'tt_tensor_recv(g, x)'
pair 'tt_safetensors_save("a", TT_NAMED_TENSORS(0, NULL, NULL), NULL, 0)' 'tt_safetensors_save("a", *p, NULL, 0)'
echo "$tried right calls compiled"
[ "$tried" -gt 0 ]
