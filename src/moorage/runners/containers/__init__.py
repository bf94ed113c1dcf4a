"""Containers of podman and docker, over the engines' own HTTP sockets; nothing is done through their commands.

`host.ContainerHost` is the way in. Containers share the machine's network, so that a port, `{host}` and readiness mean
the same as for a plain process.
"""
