"""The HTTP server of the control plane: a thin shell that parses, authorises, calls and shows.

No decision is made here. What people ask for goes to `ports.Commands`, what machines and gateways say to
`ports.Machines` and `ports.Gateways`, and questions to `moorage.control.reading`. Built by `moorage.app` with
`app.create_app(ApiDeps(...))`.
"""
