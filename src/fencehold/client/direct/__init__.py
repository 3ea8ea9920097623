"""How a calling thread talks to the service without a thread switch: it sends and receives itself."""
