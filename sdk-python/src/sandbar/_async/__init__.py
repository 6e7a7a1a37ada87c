"""The asynchronous client. The blocking client in `_sync` is generated from it: see scripts/generate.py."""
