"""The paths of the API, one file a resource. Each handler parses, calls one thing and shows what it answered."""
