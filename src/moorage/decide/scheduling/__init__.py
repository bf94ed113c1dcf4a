"""Decisions about placement: order, feasibility, scoring, and the reason for every wait."""
