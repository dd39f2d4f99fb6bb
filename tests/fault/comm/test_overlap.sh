#!/bin/sh
# An asynchronous all-reduce between two hosts with a slow link, while its ranks compute: the results are right. (How
# much of the time overlaps is measured by ./dev bench --only overlap.)
set -eu
"$TT_BUILD/tests/support/netlab" --hosts 2 --rate 200mbit -- "$TT_PROGRAMS/overlap" 1048576 1
