#!/bin/sh
# The programs of docs/parallel.md.
exec sh "$TT_SOURCE/tests/docs/run_page.sh" "$TT_SOURCE/docs/parallel.md"
