"""The dashboard: what operators look at in a browser, served by the HTTP listener.

It is a client of the service like any other. What a login sees here is what the service shows that login: every
list and every event is read with its credentials, and kept for no other login.
"""
