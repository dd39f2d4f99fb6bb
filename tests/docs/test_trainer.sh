#!/bin/sh
# The programs of docs/trainer.md.
exec sh "$TT_SOURCE/tests/docs/run_page.sh" "$TT_SOURCE/docs/trainer.md"
