"""Migration from other libraries: their classes and behaviour, on whatever Fencehold is connected to.

Each module needs the library it stands in for. Nothing else of Fencehold imports anything from here.
"""
