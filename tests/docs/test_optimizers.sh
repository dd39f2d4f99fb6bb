#!/bin/sh
# The programs of docs/optimizers.md.
exec sh "$TT_SOURCE/tests/docs/run_page.sh" "$TT_SOURCE/docs/optimizers.md"
