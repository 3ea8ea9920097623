"""The history of holds: who held a name at a time of day, with which fence, how it ended, and who waited.

It is kept in a bounded SQLite file beside the journal, and can be filled again from what the journal still has.
"""
