"""One suite for every engine: what the journal port promises, asked of each that says it keeps it.

`ENGINE=file pytest tests/contract` asks one engine only. An engine joins by adding a harness to `ENGINES` in
`engines.py`; what it does not do it declares, and the suite then asserts the refusal. Nothing is skipped.
"""
