"""The gateway: its own process, an HTTP/1.1 data path that never waits for the control plane.

`main` starts it; `hub` ties connections, pools and the routing core together; `frontend` and `upstream` are the two
sides of a request; `heads`, `framing` and `skim` read HTTP and JSON no further than needed; `control` talks to the
control plane. Decisions live in `moorage.decide.serving.routing`, not here.
"""
