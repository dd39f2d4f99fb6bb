/* Linked into every program of a build with the thread sanitizer. libuv closes descriptors by the bare system call,
 * which the sanitizer does not see: the next descriptor of that number, of another thread, looks like a race. This
 * syscall() comes before the C library's, and tells the sanitizer of such a close, as libuv does where it is built with
 * it. */
#include <dlfcn.h>
#include <stdarg.h>
#include <sys/syscall.h>

/* The sanitizer's (sanitizer/linux_syscall_hooks.h, which gcc does not install). */
void __sanitizer_syscall_pre_impl_close(long fd);
void __sanitizer_syscall_post_impl_close(long result, long fd);

typedef long syscall_function(long, ...);

long syscall(long number, ...);

__attribute__((visibility("default"), no_sanitize("thread"))) long syscall(long number, ...) {
    static _Atomic(syscall_function *) next;
    long args[6];
    va_list list;
    syscall_function *function = next;
    if (!function)
        next = function = (syscall_function *)dlsym(RTLD_NEXT, "syscall");
    va_start(list, number);
    for (int i = 0; i < 6; i++)
        args[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_close)
        __sanitizer_syscall_pre_impl_close(args[0]);
    long result = function(number, args[0], args[1], args[2], args[3], args[4], args[5]);
    if (number == SYS_close)
        __sanitizer_syscall_post_impl_close(result, args[0]);
    return result;
}
