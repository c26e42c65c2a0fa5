"""One HTML file that needs nothing else: no server, no network, no other file."""
