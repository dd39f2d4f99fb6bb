#!/bin/sh
# The programs of docs/spawn.md.
exec sh "$TT_SOURCE/tests/docs/run_page.sh" "$TT_SOURCE/docs/spawn.md"
