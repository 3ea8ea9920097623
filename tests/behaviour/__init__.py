"""One suite of behaviour for everything that `connect` takes: what each promises is asserted, and so is what it
does not promise. Nothing is skipped.
"""
