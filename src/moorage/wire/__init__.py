"""What travels: spec documents and the messages between client, server, agent and gateway, as pydantic models.

Imports nothing but `domain`. Field names are part of the contract; add, never rename.
"""
