"""The model cache of a machine: what was fetched from hubs, whole and proven, used by any number of workers.

`cache` is the door; `shelf` is what lies on disk, `fetching` one fetch, `desk` what people ask of it, `words` what is
said of a failure.
"""
