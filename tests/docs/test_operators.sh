#!/bin/sh
# The programs of docs/operators.md.
exec sh "$TT_SOURCE/tests/docs/run_page.sh" "$TT_SOURCE/docs/operators.md"
