#!/bin/sh
# The programs of docs/elastic.md.
exec sh "$TT_SOURCE/tests/docs/run_page.sh" "$TT_SOURCE/docs/elastic.md"
