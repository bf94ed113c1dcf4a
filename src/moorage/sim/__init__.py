"""Days of a cluster in seconds: the production scheduler over a trace, in simulated time. Nothing here decides."""
