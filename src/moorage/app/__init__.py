"""Composition: settings read once, the real graph built, the parts of one machine started and kept running."""
