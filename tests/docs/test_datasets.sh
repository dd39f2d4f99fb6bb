#!/bin/sh
# The programs of docs/datasets.md.
exec sh "$TT_SOURCE/tests/docs/run_page.sh" "$TT_SOURCE/docs/datasets.md"
