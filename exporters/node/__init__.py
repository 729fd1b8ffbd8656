"""What a node says of itself: host, processes, containers, network, links."""
