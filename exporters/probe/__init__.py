"""Requests of our own through the gateway: how long they take, and whether answers are right."""
