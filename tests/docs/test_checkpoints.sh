#!/bin/sh
# The programs of docs/checkpoints.md.
exec sh "$TT_SOURCE/tests/docs/run_page.sh" "$TT_SOURCE/docs/checkpoints.md"
