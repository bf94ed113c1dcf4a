"""Moorage."""
