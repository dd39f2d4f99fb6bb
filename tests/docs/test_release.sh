#!/bin/sh
# The commands of docs/release.md, as they stand, in a clone of the repository with a key of its own.
set -eu
fail() { echo "FAILED: $*"; exit 1; }
for tool in git ssh-keygen sha256sum readelf; do
    command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
git -C "$TT_SOURCE" rev-parse HEAD >/dev/null 2>&1 || { echo "skipped: not a git repository"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone -q --no-tags "$TT_SOURCE" "$work/clone"
cd "$work/clone"
# What is not committed yet is looked at, too.
cp "$TT_SOURCE/tools/sbom.py" tools/

key=$work/key
ssh-keygen -q -t ed25519 -N '' -C release@example.org -f "$key"
printf 'release@example.org namespaces="tutti-release" %s\n' "$(cut -d ' ' -f 1,2 "$key.pub")" >allowed_signers
for setting in user.name=Tester user.email=release@example.org gpg.format=ssh "user.signingKey=$key"; do
    git config "${setting%%=*}" "${setting#*=}"
done

# The build's place is taken by the one that is tested: building takes minutes.
cmake() { [ "$1" != -B ] || ln -sfn "$TT_BUILD" "$2"; }

awk '/^```sh$/ { on = 1; next } /^```$/ { on = 0 } on' "$TT_SOURCE/docs/release.md" >"$work/commands"
[ "$(grep -c . "$work/commands")" -gt 8 ] || fail "the page's commands were not found"
version=none
# shellcheck disable=SC1091 # made above
. "$work/commands"
[ "$version" = "$(sed -n 's/^project(tutti VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)" ] || fail "the page's version"

tar -tzf "tutti-$version.tar.gz" >"$work/list"
grep -q "^tutti-$version/CMakeLists.txt$" "$work/list" || fail "no sources in the archive"
grep -q '"spdxVersion": "SPDX-2.3"' "tutti-$version.spdx.json" || fail "no bill of materials"
printf 'x' >>"tutti-$version.tar.gz"
! sha256sum --status --check SHA256SUMS || fail "a changed archive has the same checksum"
echo "# changed" >>SHA256SUMS
! ssh-keygen -Y verify -n tutti-release -f allowed_signers -I release@example.org -s SHA256SUMS.sig <SHA256SUMS \
    >/dev/null 2>&1 || fail "a changed list has the same signature"
echo "ok: the commands of docs/release.md"
