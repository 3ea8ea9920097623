"""The `fencehold` command: start a server, use locks in scripts, and inspect a service.

`main` is where it begins and `app` puts it together; each group of commands is a module of its own. What they
share: `exits` (the one table of exit codes), `options`, `output`, `failures`, and `wire`, which talks to a server
without a session. Nothing is imported before the command that needs it is known.
"""
