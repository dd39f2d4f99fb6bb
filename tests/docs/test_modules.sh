#!/bin/sh
# The programs of docs/modules.md.
exec sh "$TT_SOURCE/tests/docs/run_page.sh" "$TT_SOURCE/docs/modules.md"
