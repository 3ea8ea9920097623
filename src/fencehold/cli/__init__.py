"""The `fencehold` command: a server to start, locks for scripts, and eyes for people.

`main` is where it begins and `app` puts it together; each group of commands is a module of its own. What they
share: `exits` (the one table of exit codes), `options`, `output`, `failures`, and `wire`, which talks to a server
without a session. Nothing is imported before the command that needs it is known.
"""
