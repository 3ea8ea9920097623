"""How nodes speak to one another: through the same door as everybody."""
