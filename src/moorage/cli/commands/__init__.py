"""One module for each family of commands, loaded only when one of them runs."""
