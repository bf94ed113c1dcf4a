"""The nouns of Moorage, their transition tables, reasons, units and errors: pure, standard library only.

Nothing here awaits, reads a clock or the environment, draws a random number or logs; identities and times are
arguments. Every other room may import this one; it imports none of them.
"""
