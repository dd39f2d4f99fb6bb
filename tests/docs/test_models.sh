#!/bin/sh
# The programs of docs/models.md.
exec sh "$TT_SOURCE/tests/docs/run_page.sh" "$TT_SOURCE/docs/models.md"
