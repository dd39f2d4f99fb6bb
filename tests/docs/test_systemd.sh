#!/bin/sh
# The unit of docs/launch/systemd.md, with the lines for several hosts, is one that systemd takes.
set -eu
command -v systemd-analyze >/dev/null || { echo "skipped: systemd-analyze is not here"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*"; exit 1; }

# All blocks of the page; its programs are played by one that is here, and its user and folder are.
awk '/^```/ { inside = $0 == "```ini"; next } inside' "$TT_SOURCE/docs/launch/systemd.md" >"$work/page"
sed -n '/^LoadCredential=/p; /^Environment=/p' "$work/page" >"$work/more"
[ "$(wc -l <"$work/more")" = 2 ] || fail "the lines for several hosts are not there"
sed -e '/^LoadCredential=/d; /^Environment=/d' -e "s,^ExecStart=/usr/bin/tutti,ExecStart=$TUTTI," \
    -e 's,^User=.*,User=root,' -e "s,^WorkingDirectory=.*,WorkingDirectory=/," \
    -e "/^KillMode=/r $work/more" "$work/page" >"$work/digits.service"
grep -q '^LoadCredential=' "$work/digits.service" || fail "no [Service] with KillMode"

# verify() UNIT: what systemd says of it alone; others of this machine are not ours.
verify() { systemd-analyze verify "$1" 2>&1 | grep digits || :; }

said=$(verify "$work/digits.service")
[ -z "$said" ] || fail "$said"
sed 's/^KillMode=.*/KillMode=sometimes/' "$work/digits.service" >"$work/wrong"
mv "$work/wrong" "$work/digits.service"
[ -n "$(verify "$work/digits.service")" ] || { echo "skipped: systemd-analyze verify finds nothing here"; exit 77; }
stop=$(sed -n 's/^TimeoutStopSec=//p' "$work/page")
grace=$(sed -n 's/.*--grace-period=\([0-9]*\).*/\1/p' "$work/page" | head -n 1)
[ "$stop" -gt "$grace" ] || fail "TimeoutStopSec=$stop is no more than the grace period, $grace s"
echo "ok"
