"""One suite for every engine: what the journal port promises, asked of each that says it keeps it.

`ENGINE=file pytest tests/contract` asks one engine only. An engine joins by adding a harness to
`engines`; what it does not do it declares, and the suite then asserts the refusal. Nothing is skipped.
"""
