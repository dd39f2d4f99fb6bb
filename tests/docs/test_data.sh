#!/bin/sh
# The programs of docs/data.md.
exec sh "$TT_SOURCE/tests/docs/run_page.sh" "$TT_SOURCE/docs/data.md"
