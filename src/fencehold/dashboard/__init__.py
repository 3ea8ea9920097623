"""The dashboard: what operators look at in a browser, served by the HTTP listener.

It is a client of the service like any other. What a login sees here is what the service tells that login: every
list and every event is asked for with its credentials, and kept for nobody else.
"""
