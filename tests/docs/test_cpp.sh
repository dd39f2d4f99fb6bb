#!/bin/sh
# The programs of docs/cpp.md.
exec sh "$TT_SOURCE/tests/docs/run_page.sh" "$TT_SOURCE/docs/cpp.md"
