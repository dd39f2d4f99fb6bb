#!/bin/sh
# Run tests as an ordinary user, whom the kernel allows less than root. Root starts this, and it becomes nobody
# (TT_USER: another user), with the limit of descriptors that a login has.
#
#   tools/tests_as_nobody.sh BUILD [ARGUMENTS OF ctest]      without any: the suites dist and fault
#
# Sources and build stay where they are. A mount name space of its own lets the user reach them, also below /root, and
# gives it a folder for ctest's notes and an empty home. Nothing is left behind.
set -eu
build=$(realpath "${1:?the build folder}")
shift
source=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$build/CMakeCache.txt")
user=${TT_USER:-nobody}
[ "$(id -u)" = 0 ] || { echo "tests_as_nobody: only root can become another user: run ctest itself"; exit 77; }
[ $# -gt 0 ] || set -- -L '^(dist|fault)$'

if [ "${TT_INSIDE:-}" != 1 ]; then
  unshare --mount true 2>/dev/null || { echo "skipped: no mount name space can be made here"; exit 77; }
  TT_INSIDE=1 exec unshare --mount "$0" "$build" "$@"
fi

as_user() { setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups "$@"; }

# Let the user reach a folder under its own name: what hides it becomes an empty folder that holds nothing else.
expose() {
  as_user test -x "$1" && return
  aside=/mnt/aside-$(basename "$1")
  mkdir -p "$aside"
  mount --bind "$1" "$aside"
  hider=$1
  while parent=$(dirname "$hider") && ! as_user test -x "$parent"; do hider=$parent; done
  mount -t tmpfs -o mode=755 tmpfs "$hider"
  mkdir -p "$1"
  mount --bind "$aside" "$1"
}

mount -t tmpfs -o mode=755 tmpfs /mnt
expose "$source"
expose "$build"
mkdir -p "$build/Testing" /mnt/home
mount -t tmpfs -o mode=700,uid="$(id -u "$user")" tmpfs "$build/Testing"
chown "$user" /mnt/home
# shellcheck disable=SC3045  # dash has it, too
ulimit -n 1024
cd /
unset TT_INSIDE
as_user env HOME=/mnt/home ctest --test-dir "$build" --output-on-failure --no-tests=error "$@"
