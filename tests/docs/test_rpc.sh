#!/bin/sh
# The programs of docs/rpc.md.
exec sh "$TT_SOURCE/tests/docs/run_page.sh" "$TT_SOURCE/docs/rpc.md"
