"""Rewrites of the graph, each switched on or off by its name in a request."""
