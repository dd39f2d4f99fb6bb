#!/bin/sh
# The programs of docs/reproducibility.md.
exec sh "$TT_SOURCE/tests/docs/run_page.sh" "$TT_SOURCE/docs/reproducibility.md"
