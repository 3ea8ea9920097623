"""What listeners in their own process share: they reach the service as any client does, by the SDK.

A gateway decides nothing about locks. It keeps, for clients that speak another protocol, the sessions and holds
that the SDK keeps for a Python program, and names every error alike in each protocol.
"""
