#!/bin/sh
# The programs of docs/mixed_precision.md.
exec sh "$TT_SOURCE/tests/docs/run_page.sh" "$TT_SOURCE/docs/mixed_precision.md"
