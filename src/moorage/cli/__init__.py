"""The `moor` command. Speaks to a control plane through `moorage.client` only, and starts processes by module name."""
